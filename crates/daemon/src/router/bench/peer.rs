//! Forwarders that a router is measured beside, in the same place and with the same packets.
//!
//! | peer                | is                                                  | receives by           |
//! |---------------------|-----------------------------------------------------|-----------------------|
//! | [`Peer::Frames`]    | ours, which only changes addresses (`forwarder.rs`) | AF_XDP                |
//! | [`Peer::Packets`]   | the same                                            | AF_PACKET, its ring   |
//! | [`Peer::Click`]     | Click at user level: a router of IP with two routes | AF_PACKET, by libpcap |
//! | [`Peer::Testpmd`]   | DPDK's `dpdk-testpmd`, which changes addresses      | AF_XDP                |
//!
//! The last two are programs of others: one that is not installed is left out, aloud. Click is built from its own
//! sources (Debian's `click` is something else); `CLICK` names its program if that is not on the path.

use super::Complaint;
use super::place::Place;
use std::process::Command;
use std::time::Duration;

/// What names Click's program.
const CLICK: &str = "CLICK";
/// What Click says first when it is asked for its version.
const CLICK_SAYS: &str = "click (Click)";
/// DPDK's program.
const TESTPMD: &str = "dpdk-testpmd";
/// From the start of another's program until it forwards.
const STARTS: Duration = Duration::from_secs(3);

/// A forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Ours, by frames in memory that is shared with the kernel.
    Frames,
    /// Ours, by packet sockets.
    Packets,
    /// Click.
    Click,
    /// DPDK's.
    Testpmd,
}

/// The program of Click, if it is there.
fn click() -> Option<String> {
    let program = std::env::var(CLICK).unwrap_or_else(|_| "click".to_owned());
    let said = Command::new(&program).arg("--version").output().ok()?;
    String::from_utf8_lossy(&said.stdout).starts_with(CLICK_SAYS).then_some(program)
}

/// Whether a program is on the path; it is not started.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Click's router: checks, a lookup among two routes, a hop less, a queue.
fn router() -> String {
    let from = "METHOD PCAP, PROMISC false, SNIFFER true, BURST 64, OUTBOUND false";
    format!(
        "FromDevice(r0, {from}) -> Classifier(12/0800) -> Strip(14) -> CheckIPHeader \
         -> routes :: DirectIPLookup(10.0.0.0/8 1, 0.0.0.0/0 10.2.0.9 0); \
         routes[0] -> DropBroadcasts -> hops :: DecIPTTL -> FixIPSrc(10.2.0.1) \
         -> IPFragmenter(1500) -> EtherEncap(0x0800, 02:00:00:00:00:03, 02:00:00:00:00:99) \
         -> Queue(2048) -> ToDevice(r1, METHOD PCAP, BURST 64); \
         routes[1] -> Discard; hops[1] -> Discard;"
    )
}

/// Arguments of testpmd: both ends by AF_XDP, copied, each frame with the address of the next router.
fn testpmd() -> Vec<String> {
    let ends = ["r0", "r1"].into_iter().enumerate();
    let ends = ends.map(|(at, end)| format!("--vdev=net_af_xdp{at},iface={end},force_copy=1"));
    let before = ["--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--lcores", "0@0,1@1"];
    let after = [
        "--",
        "--forward-mode=mac",
        "--eth-peer=1,02:00:00:00:00:99",
        "--eth-peer=0,02:00:00:00:00:01",
        "--auto-start",
        "--stats-period=100",
        "--total-num-mbufs=16384",
        "--port-topology=paired",
    ];
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    [words(&before), ends.collect(), words(&after)].concat()
}

impl Peer {
    /// Why it cannot be measured here, if so.
    pub(super) fn lacks(self) -> Option<String> {
        match self {
            Peer::Frames | Peer::Packets => None,
            Peer::Click if click().is_some() => None,
            Peer::Click => Some(format!("Click is not here: {CLICK}=PATH/TO/click")),
            Peer::Testpmd if is_installed(TESTPMD) => None,
            Peer::Testpmd => Some(format!("{TESTPMD} is not here: apt install dpdk-dev")),
        }
    }

    /// Starts it, and waits until it forwards.
    pub(super) fn start(self, place: &mut Place) -> Result<(), Complaint> {
        match self {
            Peer::Frames => place.forwarder("frame-forwarder"),
            Peer::Packets => {
                // The kernel gets each packet, too: it is to drop them at once.
                place.not_for_the_kernel()?;
                place.forwarder("packet-forwarder")
            }
            Peer::Click => {
                place.not_for_the_kernel()?;
                let program = click().ok_or("Click is not here")?;
                place.program(&program, &["-e".to_owned(), router()], STARTS)
            }
            Peer::Testpmd => place.program(TESTPMD, &testpmd(), STARTS),
        }
    }
}
