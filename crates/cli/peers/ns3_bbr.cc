// BBR (or another TCP) over one bottleneck in ns-3, to compare with `experiments/bbr`.
//
//   a -- 10 Gbit/s, 1 ms -- r1 ==== 10 Mbit/s, 18 ms ==== r2 -- 10 Gbit/s, 1 ms -- b
//
// --flows connections, each starting --later seconds after the one before, send as much as they can in IP
// packets of 1500 bytes. Prints one line of JSON: bytes that each connection delivered from --from on, the
// mean number of packets waiting at the bottleneck in that time, and the drops of the whole run.
//
//   g++ -O2 -std=c++17 -o ns3_bbr ns3_bbr.cc -lns3-core -lns3-network -lns3-internet \
//       -lns3-point-to-point -lns3-applications -lns3-traffic-control -lns3-bridge -lns3-stats
#include <cstdio>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

static double from = 2;
static double area = 0;
static double since = 0;
static uint32_t waiting = 0;
static uint64_t dropped = 0;

static void
Waiting(uint32_t, uint32_t now)
{
    const double at = Simulator::Now().GetSeconds();
    area += at > from ? waiting * (at - std::max(since, from)) : 0;
    since = at;
    waiting = now;
}

static void
Dropped(Ptr<const Packet>)
{
    ++dropped;
}

int
main(int argc, char* argv[])
{
    double seconds = 30;
    double later = 0;
    uint32_t room = 33;
    uint32_t flows = 1;
    uint32_t seed = 1;
    std::string control = "TcpBbr";
    CommandLine commandLine;
    commandLine.AddValue("seconds", "simulated time", seconds);
    commandLine.AddValue("from", "when counting begins", from);
    commandLine.AddValue("packets", "queue limit at the bottleneck, in packets", room);
    commandLine.AddValue("flows", "connections", flows);
    commandLine.AddValue("later", "seconds between their starts", later);
    commandLine.AddValue("control", "which TCP", control);
    commandLine.AddValue("seed", "seed of the random streams", seed);
    commandLine.Parse(argc, argv);
    RngSeedManager::SetSeed(seed);

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::" + control));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(8 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(8 << 20));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));

    NodeContainer nodes(4);
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(nodes);
    TrafficControlHelper none; // Assigning addresses installs a queue discipline; remove it.
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4Address to;
    auto join = [&](uint32_t one, uint32_t other, const char* rate, const char* delay, uint32_t packets) {
        PointToPointHelper helper;
        helper.SetDeviceAttribute("DataRate", StringValue(rate));
        helper.SetChannelAttribute("Delay", StringValue(delay));
        helper.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(std::to_string(packets) + "p"));
        NetDeviceContainer devices = helper.Install(nodes.Get(one), nodes.Get(other));
        to = addresses.Assign(devices).GetAddress(1);
        none.Uninstall(devices);
        addresses.NewNetwork();
        return devices;
    };
    join(0, 1, "10Gbps", "1ms", 100000);
    NetDeviceContainer ends = join(1, 2, "10Mbps", "18ms", room);
    join(2, 3, "10Gbps", "1ms", 100000);
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    Ptr<Queue<Packet>> queue = DynamicCast<PointToPointNetDevice>(ends.Get(0))->GetQueue();
    queue->TraceConnectWithoutContext("PacketsInQueue", MakeCallback(&Waiting));
    queue->TraceConnectWithoutContext("Drop", MakeCallback(&Dropped));
    // A full device queue stops the layer above, which then drops.
    nodes.Get(1)->GetObject<TrafficControlLayer>()->TraceConnectWithoutContext(
        "TcDrop",
        MakeCallback(+[](Ptr<const Packet>) { ++dropped; }));

    std::vector<Ptr<PacketSink>> sinks;
    std::vector<uint64_t> before(flows, 0);
    for (uint32_t i = 0; i < flows; ++i)
    {
        const uint16_t port = 9 + i;
        PacketSinkHelper sink("ns3::TcpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), port));
        sinks.push_back(DynamicCast<PacketSink>(sink.Install(nodes.Get(3)).Get(0)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(to, port));
        bulk.SetAttribute("SendSize", UintegerValue(1448));
        bulk.Install(nodes.Get(0)).Start(Seconds(i * later));
    }
    Simulator::Schedule(Seconds(from), [&] {
        for (uint32_t i = 0; i < flows; ++i)
        {
            before[i] = sinks[i]->GetTotalRx();
        }
    });
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    Waiting(0, 0);
    std::printf("{\"waiting\": %.4f, \"dropped\": %lu, \"delivered\": [",
                area / (seconds - from),
                dropped);
    for (uint32_t i = 0; i < flows; ++i)
    {
        std::printf("%s%lu", i > 0 ? ", " : "", sinks[i]->GetTotalRx() - before[i]);
    }
    std::printf("]}\n");
    Simulator::Destroy();
    return 0;
}
