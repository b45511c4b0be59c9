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
// With --corrected the faults of ns-3's recovery that `ns3_mended.h` names are mended.
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
#include "ns3_mended.h"

using namespace ns3;

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
    bool corrected = false;
    CommandLine commandLine;
    commandLine.AddValue("seconds", "simulated time", seconds);
    commandLine.AddValue("packets", "queue limit at the bottleneck, in packets", room);
    commandLine.AddValue("red", "RED instead of drop-tail", red);
    commandLine.AddValue("seed", "what names the random starts", seed);
    commandLine.AddValue("corrected", "mend what `ns3_mended.h` names of recovery", corrected);
    commandLine.Parse(argc, argv);
    RngSeedManager::SetSeed(seed);
    const uint32_t count = 100;
    const uint16_t port = 9;

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpLinuxReno"));
    if (corrected)
    {
        mended = RECOVERY;
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
