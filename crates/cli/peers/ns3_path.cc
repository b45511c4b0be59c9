// A network of an experiment in ns-3, for `lastmeter repro ns3`, which describes it on standard
// input, a thing in each line:
//
//   run SECONDS FROM SEED MENDED                     what is counted is counted from FROM on
//   link A B BITS_PER_SECOND DELAY_NS BOTTLENECK KIND PACKETS MIN MAX
//   tcp CLASS FROM TO CONTROL CONNECTIONS BYTES SPREAD_NS
//   udp CLASS FROM TO BITS_PER_SECOND BYTES          at exponential gaps
//
// MENDED is a sum of the faults in `ns3_mended.h`, or 0 for ns-3 as it is shipped. Prints one line of
// JSON: what the queues of the bottlenecks did, what each class delivered, and how long its connections
// took that ended.
//
// A discipline hands its next packet to the device when the one before has left: the device's own queue,
// which ns-3 puts behind each discipline, holds none. TCP is as Linux has it where ns-3 can be told so:
// the least timeout is 200 ms, the first one 1 s, an acknowledgement waits 40 ms at most, windows begin
// at 10 segments; SACK, timestamps, buffers of 1 MiB. HyStart is off.
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"
#include "ns3_mended.h"

using namespace ns3;

// When a packet came to the queue.
class Entered : public Tag
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("ns3::Entered").SetParent<Tag>().AddConstructor<Entered>();
        return id;
    }
    TypeId GetInstanceTypeId() const override
    {
        return GetTypeId();
    }
    uint32_t GetSerializedSize() const override
    {
        return 8;
    }
    void Serialize(TagBuffer buffer) const override
    {
        buffer.WriteU64(at);
    }
    void Deserialize(TagBuffer buffer) override
    {
        at = buffer.ReadU64();
    }
    void Print(std::ostream& out) const override
    {
        out << at;
    }

    uint64_t at{0};
};

struct Class
{
    std::string name;
    std::vector<Ptr<PacketSink>> sinks;
    std::vector<uint64_t> before;
    uint32_t finished{0};
    double took{0};
};

static double from = 0;
static uint64_t served = 0;
static uint64_t dropped = 0;
static double waited = 0;
static std::vector<std::unique_ptr<Class>> classes;
static std::map<std::string, Ptr<Node>> nodes;
static std::map<std::string, Ipv4Address> addresses;

static bool
Counts()
{
    return Simulator::Now().GetSeconds() >= from;
}

static Ptr<Node>
Named(const std::string& name)
{
    Ptr<Node>& node = nodes[name];
    if (!node)
    {
        node = CreateObject<Node>();
        InternetStackHelper stack;
        stack.SetIpv6StackInstall(false);
        stack.Install(node);
    }
    return node;
}

static std::string
Packets(uint32_t count)
{
    return std::to_string(count) + "p";
}

static void
Discipline(Ptr<NetDevice> device, std::istringstream& words, uint64_t rate, bool counted)
{
    std::string kind;
    uint32_t room;
    double min;
    double max;
    words >> kind >> room >> min >> max;
    TrafficControlHelper control;
    const StringValue most(Packets(room));
    if (kind == "drop-tail")
    {
        control.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", most);
    }
    else if (kind == "red")
    {
        control.SetRootQueueDisc("ns3::RedQueueDisc",
                                 "MaxSize",
                                 most,
                                 "MinTh",
                                 DoubleValue(min),
                                 "MaxTh",
                                 DoubleValue(max),
                                 "LInterm",
                                 DoubleValue(10),
                                 "MeanPktSize",
                                 UintegerValue(1500),
                                 "LinkBandwidth",
                                 DataRateValue(DataRate(rate)));
    }
    else if (kind == "codel")
    {
        control.SetRootQueueDisc(Mends(ROOT) ? "ns3::Codel" : "ns3::CoDelQueueDisc",
                                 "MaxSize",
                                 most);
    }
    else if (kind == "fq-codel")
    {
        control.SetRootQueueDisc("ns3::FqCoDelQueueDisc", "MaxSize", most);
    }
    else if (kind == "pie")
    {
        control.SetRootQueueDisc("ns3::PieQueueDisc",
                                 "MaxSize",
                                 most,
                                 "MeanPktSize",
                                 UintegerValue(1500),
                                 "UseDerandomization",
                                 BooleanValue(true));
    }
    else
    {
        NS_FATAL_ERROR("no queue is called " << kind);
    }
    Ptr<QueueDisc> discipline = control.Install(device).Get(0);
    Ptr<FqCoDelQueueDisc> fair = DynamicCast<FqCoDelQueueDisc>(discipline);
    if (fair && Mends(ROOT))
    {
        // It has settled on its own when the simulation has begun.
        Simulator::Schedule(NanoSeconds(1), [fair] { FactoryOf(*fair).SetTypeId("ns3::Codel"); });
    }
    Ptr<NetDeviceQueueInterface> interface = device->GetObject<NetDeviceQueueInterface>();
    auto begins = [interface, counted](Ptr<const Packet> packet) {
        interface->GetTxQueue(0)->Stop();
        Entered entered;
        if (counted && Counts() && packet->PeekPacketTag(entered))
        {
            ++served;
            waited += (Simulator::Now() - NanoSeconds(entered.at)).GetSeconds();
        }
    };
    auto ends = [interface](Ptr<const Packet>) { interface->GetTxQueue(0)->Wake(); };
    device->TraceConnectWithoutContext("PhyTxBegin", Callback<void, Ptr<const Packet>>(begins));
    device->TraceConnectWithoutContext("PhyTxEnd", Callback<void, Ptr<const Packet>>(ends));
    auto enters = [](Ptr<const QueueDiscItem> item) {
        Entered entered;
        entered.at = Simulator::Now().GetNanoSeconds();
        item->GetPacket()->ReplacePacketTag(entered);
    };
    auto drops = [counted](Ptr<const QueueDiscItem>) { dropped += counted && Counts(); };
    discipline->TraceConnectWithoutContext("Enqueue",
                                           Callback<void, Ptr<const QueueDiscItem>>(enters));
    discipline->TraceConnectWithoutContext("Drop",
                                           Callback<void, Ptr<const QueueDiscItem>>(drops));
}

static void
Link(std::istringstream& words, Ipv4AddressHelper& numbers)
{
    std::string a;
    std::string b;
    uint64_t rate;
    int64_t delay;
    bool bottleneck;
    words >> a >> b >> rate >> delay >> bottleneck;
    PointToPointHelper helper;
    helper.SetDeviceAttribute("DataRate", DataRateValue(DataRate(rate)));
    helper.SetChannelAttribute("Delay", TimeValue(NanoSeconds(delay)));
    std::string rest;
    std::getline(words, rest);
    if (!bottleneck)
    {
        // A queue of the device itself, which takes less of ns-3's time.
        std::istringstream queue(rest);
        std::string kind;
        uint32_t room;
        queue >> kind >> room;
        NS_ABORT_MSG_IF(kind != "drop-tail", "only a bottleneck has " << kind);
        helper.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(Packets(room)));
    }
    NetDeviceContainer ends = helper.Install(Named(a), Named(b));
    // Only the way there is counted; the way back has the same queue.
    for (uint32_t end = 0; bottleneck && end < 2; ++end)
    {
        std::istringstream queue(rest);
        Discipline(ends.Get(end), queue, rate, end == 0);
    }
    Ipv4InterfaceContainer both = numbers.Assign(ends);
    addresses[a] = both.GetAddress(0);
    addresses[b] = both.GetAddress(1);
    numbers.NewNetwork();
    if (!bottleneck)
    {
        TrafficControlHelper none; // Addresses bring a discipline with them.
        none.Uninstall(ends);
    }
}

static void
Tcp(std::istringstream& words, uint16_t& port)
{
    std::string name;
    std::string a;
    std::string b;
    std::string control;
    uint32_t connections;
    uint64_t bytes;
    int64_t spread;
    words >> name >> a >> b >> control >> connections >> bytes >> spread;
    if (classes.empty() || classes.back()->name != name)
    {
        classes.push_back(std::make_unique<Class>());
        classes.back()->name = name;
    }
    Class* class_ = classes.back().get();
    std::string type = "ns3::Reno";
    if (control == "cubic")
    {
        type = Mends(CUBIC) ? "ns3::Cubic9438" : "ns3::TcpCubic";
    }
    Named(a)->GetObject<TcpL4Protocol>()->SetAttribute("SocketType",
                                                       TypeIdValue(TypeId::LookupByName(type)));
    Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    for (uint32_t i = 0; i < connections; ++i)
    {
        ++port;
        PacketSinkHelper sink("ns3::TcpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), port));
        class_->sinks.push_back(DynamicCast<PacketSink>(sink.Install(Named(b)).Get(0)));
        class_->before.push_back(0);
        BulkSendHelper helper("ns3::TcpSocketFactory", InetSocketAddress(addresses[b], port));
        helper.SetAttribute("SendSize", UintegerValue(1448));
        helper.SetAttribute("MaxBytes", UintegerValue(bytes));
        ApplicationContainer installed = helper.Install(Named(a));
        const Time at = Seconds(start->GetValue(0, spread * 1e-9));
        installed.Start(at);
        if (bytes == 0)
        {
            continue;
        }
        // It has ended when all its data is acknowledged; its FIN is in the last segment.
        auto ended = [class_, at, bytes, done = std::make_shared<bool>(false)](
                         SequenceNumber32,
                         SequenceNumber32 acknowledged) {
            if (!*done && acknowledged.GetValue() > bytes)
            {
                *done = true;
                ++class_->finished;
                class_->took += (Simulator::Now() - at).GetSeconds();
            }
        };
        Ptr<BulkSendApplication> source = DynamicCast<BulkSendApplication>(installed.Get(0));
        // The socket is there as soon as the application has started.
        Simulator::Schedule(at + NanoSeconds(1), [source, ended] {
            source->GetSocket()->TraceConnectWithoutContext(
                "HighestRxAck",
                Callback<void, SequenceNumber32, SequenceNumber32>(ended));
        });
    }
}

static void
Udp(std::istringstream& words, uint16_t& port)
{
    std::string name;
    std::string a;
    std::string b;
    uint64_t rate;
    uint32_t bytes;
    words >> name >> a >> b >> rate >> bytes;
    ++port;
    PacketSinkHelper("ns3::UdpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port))
        .Install(Named(b));
    Ptr<Socket> socket = Socket::CreateSocket(Named(a), UdpSocketFactory::GetTypeId());
    socket->Connect(InetSocketAddress(addresses[b], port));
    Ptr<ExponentialRandomVariable> gap = CreateObject<ExponentialRandomVariable>();
    gap->SetAttribute("Mean", DoubleValue(bytes * 8.0 / rate));
    auto next = std::make_shared<std::function<void()>>();
    *next = [socket, gap, bytes, next] {
        socket->Send(Create<Packet>(bytes - 28));
        Simulator::Schedule(Seconds(gap->GetValue()), [next] { (*next)(); });
    };
    Simulator::Schedule(Seconds(gap->GetValue()), [next] { (*next)(); });
}

int
main()
{
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 20));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(1)));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false));
    Ipv4AddressHelper numbers("10.0.0.0", "255.255.255.252");
    double seconds = 0;
    uint32_t seed = 1;
    uint16_t port = 1000;
    bool routed = false;
    std::string line;
    while (std::getline(std::cin, line))
    {
        std::istringstream words(line);
        std::string what;
        words >> what;
        if (what == "run")
        {
            words >> seconds >> from >> seed >> mended;
            // Another run, not another seed: what ns-3 draws with seed N is N times what it draws with seed 1,
            // without the whole part.
            RngSeedManager::SetRun(seed);
            if (Mends(SINGLE))
            {
                Config::SetDefault("ns3::CoDelQueueDisc::MinBytes", UintegerValue(1501));
            }
            if (Mends(REDUCTION))
            {
                Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                                   StringValue("ns3::Proportional"));
            }
            continue;
        }
        if (what == "link")
        {
            Link(words, numbers);
            continue;
        }
        if (!routed)
        {
            Ipv4GlobalRoutingHelper::PopulateRoutingTables();
            routed = true;
        }
        if (what == "tcp")
        {
            Tcp(words, port);
        }
        else if (what == "udp")
        {
            Udp(words, port);
        }
    }
    Simulator::Schedule(Seconds(from), [] {
        for (auto& class_ : classes)
        {
            for (size_t i = 0; i < class_->sinks.size(); ++i)
            {
                class_->before[i] = class_->sinks[i]->GetTotalRx();
            }
        }
    });
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    std::printf("{\"served\": %llu, \"dropped\": %llu, \"waited\": %.9f, \"classes\": [",
                (unsigned long long)served,
                (unsigned long long)dropped,
                waited);
    const char* before = "";
    for (auto& class_ : classes)
    {
        std::printf("%s{\"name\": \"%s\", \"finished\": %u, \"took\": %.9f, \"delivered\": [",
                    before,
                    class_->name.c_str(),
                    class_->finished,
                    class_->took);
        for (size_t i = 0; i < class_->sinks.size(); ++i)
        {
            const uint64_t bytes = class_->sinks[i]->GetTotalRx() - class_->before[i];
            std::printf("%s%llu", i > 0 ? ", " : "", (unsigned long long)bytes);
        }
        std::printf("]}");
        before = ", ";
    }
    std::printf("]}\n");
    Simulator::Destroy();
    return 0;
}
