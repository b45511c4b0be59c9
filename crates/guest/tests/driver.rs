//! One driver for an adapter that others made and for one that does not exist. Without `make guest` it prints `SKIP`.

use lastmeter_base::Duration;
use lastmeter_guest::end::GuestEnd;
use lastmeter_guest::hub::{End, Hub};
use lastmeter_guest::kit::{Ended, Folder, Guest, Kit, Network, Options};
use lastmeter_guest::registers::program::{SIMPLE, program};
use lastmeter_host::adapter::description::Description;
use lastmeter_lab::{library::Builtin, profile::device::read};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// A busy machine takes several times what a quiet one does.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(120);
const OURS: &str = "lastmeter_net";
const STOCK: &str = "virtio_net";

fn options(kit: &Kit, driver: &str, address: &str, command: String) -> Options {
    let mut modules = kit.modules().unwrap();
    modules.retain(|module| module != STOCK);
    modules.push(driver.to_owned());
    Options {
        modules: Some(modules),
        address: Some(address.to_owned()),
        command,
        limit: LIMIT,
        ..Options::default()
    }
}

/// A command that says which driver runs the interface, and pings.
fn pings(other: &str) -> String {
    format!("basename $(readlink /sys/class/net/eth0/device/driver); ping -c 3 {other}")
}

fn check(ended: &Ended, driver: &str) {
    assert_eq!(ended.status, 0, "{}{}", ended.output, ended.console);
    assert_eq!(ended.output.lines().next(), Some(driver), "{}", ended.output);
    assert!(ended.output.contains(" 0% packet loss"), "{}", ended.output);
}

#[test]
fn e_77_one_driver_runs_qemus_adapter_and_one_that_does_not_exist() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest");
    let kit = match Kit::at(&folder) {
        Ok(kit) if kit.has_module(OURS) => kit,
        Ok(_) => return println!("SKIP: the guest's driver is missing: run `make guest`"),
        Err(error) => return println!("SKIP: {error}"),
    };
    // QEMU's own adapter and network.
    for (module, driver) in [(OURS, OURS), (STOCK, STOCK)] {
        let theirs = Options {
            qemu: ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]
                .map(str::to_owned)
                .into(),
            ..options(&kit, module, "10.0.2.15/24", pings("10.0.2.2"))
        };
        check(&Guest::start(&kit, &theirs).unwrap().wait().unwrap(), driver);
    }
    // Two adapters of 2 ms a message, each way: one with our driver, one with the stock one.
    let folder = Folder::new().unwrap();
    let mut card = Description::plain("two milliseconds a message");
    card.host.per_message = Duration::from_ms(2);
    let paths = ["ours", "stock"].map(|name| folder.path().join(name));
    let ends = paths.each_ref().map(|path| {
        let listener = UnixListener::bind(path).unwrap();
        End::Guest(Box::new(GuestEnd::new(listener, card.clone()).unwrap()))
    });
    let running = Hub::new(ends, Duration::ZERO).start(Duration::ZERO).unwrap();
    let [ours, stock] = paths.map(Network::VhostUser);
    let waits = "basename $(readlink /sys/class/net/eth0/device/driver); sleep 1000".to_owned();
    let stock = Options { network: stock, ..options(&kit, STOCK, "10.0.2.2/24", waits) };
    let mac = Some("52:54:00:4c:4d:02".to_owned());
    let ours =
        Options { network: ours, mac, ..options(&kit, OURS, "10.0.2.15/24", pings("10.0.2.2")) };
    let mut peer = Guest::start(&kit, &stock).unwrap();
    peer.until(|peer| peer.output().contains('\n').then_some(())).unwrap();
    assert_eq!(peer.output(), format!("{STOCK}\n"));
    check(&Guest::start(&kit, &ours).unwrap().wait().unwrap(), OURS);
    drop(peer);
    let hub = running.stop().unwrap();
    for end in &hub.ends {
        let [received, sent] = end.device().unwrap().account().frames;
        assert!(received >= 3 && sent >= 3, "{received} {sent}");
    }
    // The same files on either adapter: no line is changed. One with other registers would change four.
    let other = program("pcie4", &read("pcie4", &Builtin).unwrap());
    let changed = other.lines().zip(SIMPLE.lines()).filter(|(ours, simple)| ours != simple).count();
    let lines = include_str!("../../../guest/driver/lastmeter_net.c").lines().count();
    println!(
        "published: fewer than 30 of more than 2000 lines changed; here 0 of {lines}, and {changed} of {} between \
         adapters with registers",
        SIMPLE.lines().count()
    );
    assert!(changed <= 4);
}
