//! Forwarders in software: the x-kernel's with a null
//! interface and with an Ethernet, and flow forwarders with a processor for each port.

use super::super::{Computed, Setting, Value, row};
use crate::Error;
use crate::machines::forward::{Account, Forwarder, Layout, Step, per_port};
use lastmeter_base::{Bytes, Duration, Rate};
use std::sync::Arc;

/// Packets per run.
const PACKETS: u64 = 20_000;
/// The shortest Ethernet packet, and its overhead on the wire.
const ETHERNET_MIN: Bytes = Bytes(64);
const ETHERNET_FRAMING: Bytes = Bytes(20);

/// Processor time of the x-kernel per packet: forwarding itself, and the framework.
#[derive(Clone, Copy)]
struct Kernel {
    forwarding: Duration,
    framework: Duration,
}

impl Kernel {
    /// From a rate and the share of forwarding in it, as the document gives them.
    fn read(setting: &Setting<'_>, when: &str) -> Result<Kernel, Error> {
        let rate: u64 = setting.constants.get(&format!("rate_{when}"))?;
        let share: u64 = setting.constants.get(&format!("forwarding_{when}"))?;
        let each = Duration::from_ps(1_000_000_000_000 / rate.max(1));
        let forwarding = each.scale_ceil(share, 100);
        Ok(Kernel { forwarding, framework: each.saturating_sub(forwarding) })
    }

    fn forwarder(self, device: Duration) -> Forwarder {
        let resources = vec![("cpu".to_owned(), 1), ("I/O bus".to_owned(), 1)];
        let half = device.scale_ceil(1, 2);
        let steps = vec![
            Step::fixed("device in", 1, half),
            Step::fixed("framework", 0, self.framework),
            Step::fixed("IP", 0, self.forwarding),
            Step::fixed("device out", 1, half),
        ];
        Forwarder { resources, routes: vec![steps], window: 16 }
    }

    fn run(self, device: Duration) -> Account {
        self.forwarder(device).run(std::iter::repeat(ETHERNET_MIN), PACKETS)
    }
}

pub(in super::super) fn forwarders(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (before, after) = (Kernel::read(setting, "before")?, Kernel::read(setting, "after")?);
    let rate = |value: f64| Value::Number(value, "packets/s");
    let share = |account: &Account| {
        let (ip, framework) = (account.step("IP"), account.step("framework"));
        Value::Number(100.0 * ip / (ip + framework), "%")
    };
    let null = before.run(Duration::ZERO);
    let extended = after.run(Duration::ZERO);
    let bare = Kernel { framework: Duration::ZERO, ..before }.run(Duration::ZERO);
    let ethernet = after.run(device(setting)?);
    let wire: Rate = constants.get("ethernet_rate")?;
    let carried = 1.0 / wire.time_for(ETHERNET_MIN + ETHERNET_FRAMING).as_secs_f64();
    let driver = ethernet.step("device in") + ethernet.step("device out");
    let protocols = ethernet.step("IP") + ethernet.step("framework");
    let mut computed = vec![
        row("A-129/null-interface", rate(null.packets)),
        row("A-129/share-ip", share(&null)),
        row("A-129/framework", (bare.packets / null.packets, "x")),
        row("A-130/null-interface", rate(extended.packets)),
        row("A-130/share-forwarding", share(&extended)),
        row("A-130/less-overhead", extended.step("IP") < null.step("IP")),
        row("A-131/ethernet", rate(ethernet.packets)),
        row("A-131/less-ethernet", ethernet.packets < carried),
        row("A-131/i-o", ethernet.limit() == "I/O bus"),
        row("A-131/null-interface", extended.limit() == "cpu"),
        row("A-134/device-takes", driver > protocols),
        row("A-134/ip-cost", {
            let free = Kernel { forwarding: Duration::ZERO, ..after };
            free.run(device(setting)?).packets < 1.01 * ethernet.packets
        }),
    ];
    computed.extend(flows(setting, after)?);
    Ok(computed)
}

/// The I/O bus and its arbitration, per packet in and out: all the time between packets.
fn device(setting: &Setting<'_>) -> Result<Duration, Error> {
    Ok(Duration::from_secs(1) / setting.constants.get::<u64>("ethernet")?)
}

/// A processor for each port, and the gain of parallelism within one forwarder.
fn flows(setting: &Setting<'_>, kernel: Kernel) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let ip: Duration = constants.get("ip")?;
    let link: Rate = constants.get("link")?;
    let memory: Rate = constants.get("memory")?;
    let smallest: Bytes = constants.get("smallest")?;
    let run = |ports: u32, layout: Layout| {
        let forwarder = per_port(ports, layout, ip, Arc::new(move |len| memory.time_for(len)));
        forwarder.run(std::iter::repeat(smallest), PACKETS)
    };
    let (one, four) = (run(1, Layout::Fabric), run(4, Layout::Fabric));
    let (central, mover) = (run(4, Layout::CentralBuffer), run(4, Layout::DataMover));
    // One forwarder with several processors for IP, behind one serial driver.
    let driver = device(setting)?;
    let parallel = |processors: u32| {
        let mut forwarder = kernel.forwarder(driver);
        forwarder.resources[0].1 = processors;
        forwarder.run(std::iter::repeat(ETHERNET_MIN), PACKETS).packets
    };
    // Hardware allocates and frees the buffers.
    let buffers: u64 = constants.get("buffer_share")?;
    let framework = kernel.framework.scale_ceil(100 - buffers.min(100), 100);
    let plain = kernel.run(Duration::ZERO).packets;
    let free_list = Kernel { framework, ..kernel }.run(Duration::ZERO).packets;
    Ok(vec![
        row("A-135", four.rate / 4.0 >= link.as_bits() as f64),
        row("A-136/memory-middle", central.limit() == "memory"),
        row("A-136/data-mover", mover.rate > 1.5 * central.rate),
        row("A-146/forwarder", parallel(4) < 1.05 * parallel(1)),
        row("A-146/processor", (four.packets / one.packets / 4.0 - 1.0).abs() < 0.05),
        row("A-147", free_list > 1.1 * plain),
    ])
}
