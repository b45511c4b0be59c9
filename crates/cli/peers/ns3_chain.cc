// The chain of ten routers in ns-3, for `lastmeter bench engine/chain`.
//
//   50 senders -- r0 -- r1 -- ... -- r9 -- 50 receivers      every link 1 Gbit/s, 1 ms, 200 packets
//
// Each flow sends 1500-byte IP packets at 18 Mbit/s with a random phase. Prints one line of JSON.
#include <cstdio>
#include <sys/resource.h>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/nix-vector-routing-module.h"
#include "ns3/point-to-point-module.h"

using namespace ns3;

static uint64_t hops = 0;

static void
Sent(Ptr<const Packet>)
{
    ++hops;
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
    double seconds = 2;
    CommandLine commandLine;
    commandLine.AddValue("seconds", "simulated time", seconds);
    commandLine.Parse(argc, argv);
    const uint32_t routerCount = 10;
    const uint32_t flowCount = 50;
    const uint16_t port = 9;
    const double gap = 1500 * 8 / 18e6;

    NodeContainer routers(routerCount);
    NodeContainer senders(flowCount);
    NodeContainer receivers(flowCount);
    InternetStackHelper stack;
    Ipv4NixVectorHelper nix; // The fastest of ns-3's routing protocols: one lookup per flow.
    stack.SetRoutingHelper(nix);
    stack.SetIpv6StackInstall(false);
    stack.InstallAll();

    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    link.SetChannelAttribute("Delay", StringValue("1ms"));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("200p"));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    auto join = [&](Ptr<Node> a, Ptr<Node> b) {
        NetDeviceContainer devices = link.Install(a, b);
        for (uint32_t i = 0; i < devices.GetN(); ++i)
        {
            devices.Get(i)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Sent));
        }
        Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
        addresses.NewNetwork();
        return interfaces.GetAddress(1);
    };
    for (uint32_t i = 0; i + 1 < routerCount; ++i)
    {
        join(routers.Get(i), routers.Get(i + 1));
    }
    Ptr<UniformRandomVariable> phase = CreateObject<UniformRandomVariable>();
    UdpServerHelper server(port);
    for (uint32_t flow = 0; flow < flowCount; ++flow)
    {
        join(senders.Get(flow), routers.Get(0));
        Ipv4Address to = join(routers.Get(routerCount - 1), receivers.Get(flow));
        server.Install(receivers.Get(flow));
        UdpClientHelper client(to, port);
        client.SetAttribute("MaxPackets", UintegerValue(0xffffffff));
        client.SetAttribute("Interval", TimeValue(Seconds(gap)));
        client.SetAttribute("PacketSize", UintegerValue(1500 - 28));
        client.Install(senders.Get(flow)).Start(Seconds(phase->GetValue(0, gap)));
    }
    Simulator::Stop(Seconds(seconds));
    const double before = CpuSeconds();
    Simulator::Run();
    const double cpu = CpuSeconds() - before;
    std::printf("{\"packet_hops\": %llu, \"cpu_seconds\": %.6f}\n", (unsigned long long)hops, cpu);
    Simulator::Destroy();
    return 0;
}
