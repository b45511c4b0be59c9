// A hundred TCP connections through one bottleneck in ns-3, for `lastmeter bench engine/dumbbell`
// and to compare with `experiments/dumbbell`.
//
//   s.0  -- 10 Mbit/s, 1 ms --+                                  +-- 10 Mbit/s, 1 ms -- d.0
//   ...                       r1 ==== 500 Mbit/s, 48 ms ==== r2  ...
//   s.99 -- 10 Mbit/s, 1 ms --+                                  +-- 10 Mbit/s, 1 ms -- d.99
//
// Each connection sends as much as it can from a random instant of the first second on, in IP packets of
// 1500 bytes: TcpLinuxReno with SACK, timestamps, delayed acknowledgements and buffers of 1 MiB. Prints
// one line of JSON: the counts of the links, and the bytes that each connection delivered.
//
// With --corrected, four faults of ns-3 3.37 are corrected here, without changing its library:
//
// * Its scoreboard counts a retransmitted segment as in flight even after it has been SACKed, until it is
//   acknowledged cumulatively. RFC 6675 section 4 (SetPipe) counts only what has not been SACKed. So a
//   sender whose first retransmission is lost falls silent until its timer expires, where RFC 6675 lets
//   it send.
// * A sender in recovery whose send buffer has no unsent data retransmits segments above the highest
//   SACKed one: up to a window of segments that are in flight or have arrived. RFC 6675 section 4
//   (NextSeg, rule 3) requires (1.b) there too: "less than the highest octet covered by any received
//   SACK".
// * In recovery only the first partial acknowledgement restarts the retransmission timer, as RFC 6582
//   section 3.2 specifies for senders without SACK. If recovery lasts longer than the timer, it expires
//   while acknowledgements arrive, and data that has arrived is retransmitted. RFC 6675 section 6 requires
//   the method of RFC 6298, a restart by each acknowledgement of new data (section 5.3), or a more
//   careful one.
// * Its proportional rate reduction multiplies bytes by bytes in 32 bits (corrected in later versions).
#include <cstdio>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

static bool corrected = false;
static uint64_t hops = 0;
static uint64_t passed = 0;
static uint64_t dropped = 0;
static double area = 0;
static double since = 0;
static uint32_t waiting = 0;

static void
Sent(Ptr<const Packet>)
{
    ++hops;
}

static void
Passed(Ptr<const Packet>)
{
    ++passed;
}

static void
Dropped(Ptr<const Packet>)
{
    ++dropped;
}

static void
DroppedItem(Ptr<const QueueDiscItem>)
{
    ++dropped;
}

static void
Waiting(uint32_t, uint32_t now)
{
    const double at = Simulator::Now().GetSeconds();
    area += waiting * (at - since);
    since = at;
    waiting = now;
}

namespace ns3
{
// This function and the next replace the library's own; they differ only in what `corrected` adds.
uint32_t
TcpTxBuffer::Update(const TcpOptionSack::SackList& blocks, const Callback<void, TcpTxItem*>& told)
{
    uint32_t fresh = 0;
    SequenceNumber32 start = m_firstByteSeq;
    for (auto place = m_sentList.begin(); place != m_sentList.end(); ++place)
    {
        TcpTxItem* item = *place;
        const uint32_t size = item->m_packet->GetSize();
        const SequenceNumber32 end = start + size;
        bool covered = false;
        for (const auto& block : blocks)
        {
            covered = covered || (start >= block.first && end <= block.second);
        }
        if (covered && !item->m_sacked)
        {
            if (item->m_lost)
            {
                item->m_lost = false;
                m_lostOut -= size;
            }
            item->m_sacked = true;
            m_sackedOut += size;
            fresh += size;
            if (m_highestSack.first == m_sentList.end() || m_highestSack.second <= end)
            {
                m_highestSack = std::make_pair(place, start);
            }
            if (!told.IsNull())
            {
                told(item);
            }
            if (corrected && item->m_retrans)
            {
                item->m_retrans = false;
                m_retrans -= size;
            }
        }
        start = end;
    }
    if (fresh > 0)
    {
        UpdateLostCount();
    }
    return fresh;
}

bool
TcpTxBuffer::NextSeg(SequenceNumber32* seq, SequenceNumber32* end, bool recovers) const
{
    const bool any = m_highestSack.first != m_sentList.end();
    SequenceNumber32 start = m_firstByteSeq;
    SequenceNumber32 doubtful;
    bool doubts = false;
    for (const TcpTxItem* item : m_sentList)
    {
        if (!item->m_retrans && !item->m_sacked)
        {
            if (item->m_lost)
            {
                *seq = start;
                *end = start + m_segmentSize;
                return true;
            }
            const bool below = any && start < m_highestSack.second;
            if (!doubts && recovers && (below || !corrected))
            {
                doubts = true;
                doubtful = start;
            }
        }
        start += item->m_packet->GetSize();
    }
    if (SizeFromSequence(start) > 0)
    {
        const uint32_t window = m_rWndCallback();
        *seq = start;
        *end = start + std::min(m_segmentSize, window - std::min(window, m_sentSize));
        return m_sentSize <= window;
    }
    *seq = doubtful;
    *end = doubtful + m_segmentSize;
    return doubts;
}

// Restarts the retransmission timer for every acknowledgement of new data.
class Restarting : public TcpSocketBase
{
    void NewAck(const SequenceNumber32& ack, bool restarts) override
    {
        TcpSocketBase::NewAck(ack, restarts || corrected);
    }
};

// The library's own behaviour, for `Restarting`.
Ptr<Socket>
TcpL4Protocol::CreateSocket()
{
    auto created = [](TypeId type) {
        ObjectFactory factory;
        factory.SetTypeId(type);
        return factory.Create();
    };
    Ptr<TcpSocketBase> socket = CreateObject<Restarting>();
    socket->SetNode(m_node);
    socket->SetTcp(this);
    socket->SetRtt(DynamicCast<RttEstimator>(created(m_rttTypeId)));
    socket->SetCongestionControlAlgorithm(
        DynamicCast<TcpCongestionOps>(created(m_congestionTypeId)));
    socket->SetRecoveryAlgorithm(DynamicCast<TcpRecoveryOps>(created(m_recoveryTypeId)));
    m_sockets.push_back(socket);
    return socket;
}

// Proportional rate reduction (RFC 9937 section 6.2) in 64 bits.
class Proportional : public TcpClassicRecovery
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("ns3::Proportional")
                               .SetParent<TcpClassicRecovery>()
                               .AddConstructor<Proportional>();
        return id;
    }

    void EnterRecovery(Ptr<TcpSocketState> tcb, uint32_t, uint32_t, uint32_t delivered) override
    {
        m_out = 0;
        m_delivered = 0;
        m_flight = tcb->m_bytesInFlight;
        DoRecovery(tcb, delivered);
    }

    void DoRecovery(Ptr<TcpSocketState> tcb, uint32_t delivered) override
    {
        if (delivered == 0)
        {
            return;
        }
        m_delivered += delivered;
        const int64_t pipe = tcb->m_bytesInFlight;
        const int64_t threshold = tcb->m_ssThresh;
        const int64_t segment = tcb->m_segmentSize;
        int64_t send;
        if (pipe > threshold)
        {
            send = (m_delivered * threshold + m_flight - 1) / m_flight - m_out;
        }
        else
        {
            const int64_t more = tcb->m_isRetransDataAcked ? segment : 0;
            const int64_t limit = std::max<int64_t>(m_delivered - m_out, delivered) + more;
            send = std::min(limit, threshold - pipe);
        }
        send = std::max(send, m_out > 0 ? 0 : segment);
        tcb->m_cWnd = pipe + send;
        tcb->m_cWndInfl = tcb->m_cWnd;
    }

    void ExitRecovery(Ptr<TcpSocketState> tcb) override
    {
        tcb->m_cWndInfl = tcb->m_cWnd;
    }

    void UpdateBytesSent(uint32_t bytes) override
    {
        m_out += bytes;
    }

    Ptr<TcpRecoveryOps> Fork() override
    {
        return CopyObject<Proportional>(this);
    }

  private:
    int64_t m_delivered{0};
    int64_t m_out{0};
    int64_t m_flight{1};
};
NS_OBJECT_ENSURE_REGISTERED(Proportional);
} // namespace ns3

static double
CpuSeconds()
{
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
           1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

int
main(int argc, char* argv[])
{
    double seconds = 20;
    uint32_t room = 200;
    uint32_t seed = 1;
    bool red = false;
    CommandLine commandLine;
    commandLine.AddValue("seconds", "simulated time", seconds);
    commandLine.AddValue("packets", "queue limit at the bottleneck, in packets", room);
    commandLine.AddValue("red", "RED instead of drop-tail", red);
    commandLine.AddValue("seed", "seed of the random start times", seed);
    commandLine.AddValue("corrected", "correct the faults listed at the top of this file", corrected);
    commandLine.Parse(argc, argv);
    RngSeedManager::SetSeed(seed);
    const uint32_t count = 100;
    const uint16_t port = 9;

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpLinuxReno"));
    if (corrected)
    {
        Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", StringValue("ns3::Proportional"));
    }
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 20));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));

    NodeContainer routers(2);
    NodeContainer senders(count);
    NodeContainer receivers(count);
    InternetStackHelper stack;
    Ipv4StaticRoutingHelper routes; // The fastest of ns-3's routing protocols here.
    stack.SetRoutingHelper(routes);
    stack.SetIpv6StackInstall(false);
    stack.InstallAll();

    auto link = [](const char* rate, const char* delay, uint32_t packets) {
        PointToPointHelper helper;
        helper.SetDeviceAttribute("DataRate", StringValue(rate));
        helper.SetChannelAttribute("Delay", StringValue(delay));
        helper.SetQueue("ns3::DropTailQueue",
                        "MaxSize",
                        StringValue(std::to_string(packets) + "p"));
        return helper;
    };
    PointToPointHelper access = link("10Mbps", "1ms", 10000);
    PointToPointHelper trunk = link("500Mbps", "48ms", red ? 1 : room);
    NetDeviceContainer ends = trunk.Install(routers);
    if (red)
    {
        TrafficControlHelper control;
        control.SetRootQueueDisc("ns3::RedQueueDisc",
                                 "MaxSize",
                                 StringValue(std::to_string(room) + "p"),
                                 "MinTh",
                                 DoubleValue(room / 4.0),
                                 "MaxTh",
                                 DoubleValue(3 * room / 4.0),
                                 "QW",
                                 DoubleValue(0.002),
                                 "MeanPktSize",
                                 UintegerValue(1500),
                                 "LinkBandwidth",
                                 StringValue("500Mbps"),
                                 "LinkDelay",
                                 StringValue("48ms"));
        QueueDiscContainer disciplines = control.Install(ends);
        Ptr<QueueDisc> discipline = disciplines.Get(0);
        discipline->TraceConnectWithoutContext("Drop", MakeCallback(&DroppedItem));
        discipline->TraceConnectWithoutContext("PacketsInQueue", MakeCallback(&Waiting));
    }
    else
    {
        Ptr<Queue<Packet>> queue = DynamicCast<PointToPointNetDevice>(ends.Get(0))->GetQueue();
        queue->TraceConnectWithoutContext("PacketsInQueue", MakeCallback(&Waiting));
        queue->TraceConnectWithoutContext("Drop", MakeCallback(&Dropped));
    }
    auto counted = [](const NetDeviceContainer& devices) {
        for (uint32_t i = 0; i < devices.GetN(); ++i)
        {
            devices.Get(i)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Sent));
        }
    };
    counted(ends);
    ends.Get(0)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Passed));

    TrafficControlHelper none; // Assigning addresses installs a queue discipline; remove it.
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    Ipv4InterfaceContainer middle = addresses.Assign(ends);
    if (!red)
    {
        none.Uninstall(ends);
        routers.Get(0)->GetObject<TrafficControlLayer>()->TraceConnectWithoutContext(
            "TcDrop",
            MakeCallback(&Dropped));
    }
    auto join = [&](Ptr<Node> host, Ptr<Node> router) {
        NetDeviceContainer devices = access.Install(host, router);
        counted(devices);
        Ipv4InterfaceContainer both = addresses.Assign(devices);
        none.Uninstall(devices);
        addresses.NewNetwork();
        routes.GetStaticRouting(host->GetObject<Ipv4>())->SetDefaultRoute(both.GetAddress(1), 1);
        return both.GetAddress(0);
    };
    auto onwards = [&](uint32_t router, Ipv4Address peer, uint32_t interface) {
        Ptr<Ipv4> ip = routers.Get(router)->GetObject<Ipv4>();
        routes.GetStaticRouting(ip)->SetDefaultRoute(peer, interface);
    };
    onwards(0, middle.GetAddress(1), middle.Get(0).second);
    onwards(1, middle.GetAddress(0), middle.Get(1).second);
    addresses.SetBase("10.1.0.0", "255.255.255.252");
    for (uint32_t i = 0; i < count; ++i)
    {
        join(senders.Get(i), routers.Get(0));
    }
    addresses.SetBase("10.128.0.0", "255.255.255.252");
    Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
    ApplicationContainer sinks = sink.Install(receivers);
    for (uint32_t i = 0; i < count; ++i)
    {
        Ipv4Address to = join(receivers.Get(i), routers.Get(1));
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(to, port));
        bulk.SetAttribute("SendSize", UintegerValue(1448));
        bulk.Install(senders.Get(i)).Start(Seconds(start->GetValue(0, 1)));
    }
    Simulator::Stop(Seconds(seconds));
    const double before = CpuSeconds();
    Simulator::Run();
    const double cpu = CpuSeconds() - before;
    Waiting(0, 0);
    std::printf("{\"packet_hops\": %llu, \"cpu_seconds\": %.6f, \"passed\": %llu, "
                "\"dropped\": %llu, \"waiting\": %.4f, \"delivered\": [",
                (unsigned long long)hops,
                cpu,
                (unsigned long long)passed,
                (unsigned long long)dropped,
                area / seconds);
    for (uint32_t i = 0; i < count; ++i)
    {
        const uint64_t bytes = DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx();
        std::printf("%s%llu", i ? ", " : "", (unsigned long long)bytes);
    }
    std::printf("]}\n");
    Simulator::Destroy();
    return 0;
}
