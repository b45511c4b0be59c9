//! Livelock in a real kernel, and a cure. Without `make guest` it prints `SKIP` and why.

use lastmeter_base::Bytes;
use lastmeter_guest::kit::{Folder, Guest, Kit, Network, Options};
use lastmeter_guest::livelock::{Curve, Datagram, Kind, Mode, Plan, Wire, measure};
use lastmeter_host::adapter::description::Description;
use lastmeter_linux::clock::nanoseconds;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The guest's processor ran for at least this share of the time, and the load was at least this multiple of the
/// highest rate: else the machine was too busy to tell.
const SHARE_MIN: f64 = 0.8;
const LOAD_MIN: f64 = 4.0;

/// One guest at a time: beside another, its processor would run too seldom to tell.
static ALONE: Mutex<()> = Mutex::new(());

/// What guests need, with our driver, and the machine to itself; without it the test says that it skips.
fn kit() -> Option<(Kit, MutexGuard<'static, ()>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest");
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Kit::at(&folder) {
        Ok(kit) if kit.has("sink") && kit.has_module("lastmeter_net") => return Some((kit, alone)),
        Ok(_) => println!("SKIP: the guest's driver is missing: run `make guest`"),
        Err(error) => println!("SKIP: {error}"),
    }
    None
}

/// Whether a measurement shows livelock with interrupts and none with a clock.
enum Found {
    Yes,
    No(String),
    Undecided(String),
}

fn livelock(kit: &Kit) -> Found {
    let plan = Plan {
        modes: vec![Mode::Interrupts, Mode::Timed],
        loads: vec![0.1, 0.7, 1.0, 8.0],
        work: Duration::from_micros(20),
        lasts: Duration::from_millis(300),
        limit: Duration::from_secs(120),
        adapter: None,
    };
    let measured = measure(kit, &plan, &mut |_| {}).unwrap();
    println!("highest {:.0}/s, {:?}", measured.highest, measured.constants());
    for curve in &measured.curves {
        println!("{} {:?}", curve.mode.name(), curve.driver);
        for point in &curve.points {
            println!("  {point:.3?}");
        }
    }
    let [interrupts, timed] = &measured.curves[..] else { panic!("two modes") };
    // What holds on any machine.
    for point in interrupts.points.iter().chain(&timed.points) {
        assert!((0.0..=1.0).contains(&point.left) && point.p50 <= point.p99, "{point:?}");
    }
    assert!(interrupts.driver.interrupts > 0.0 && timed.driver.interrupts == 0.0);
    assert!(measured.constants().is_some_and(|found| found.accept > 0.0));
    let last = |curve: &Curve| *curve.points.last().unwrap();
    for curve in &measured.curves {
        let share = curve.points.iter().map(|point| point.share).fold(1.0, f64::min);
        let load = last(curve).offered / measured.highest;
        if share < SHARE_MIN || load < LOAD_MIN {
            return Found::Undecided(format!(
                "the guest's processor ran {share:.2} of the time, {load:.1} times its highest rate came"
            ));
        }
    }
    let kept = |curve| last(curve).processed / curve.peak();
    let (with, left, by_clock) = (kept(interrupts), last(interrupts).left, kept(timed));
    // E-96, E-100: more is sent, less is done, and nothing is left. E-102: what a clock limits goes on.
    if with < 0.5 && left < 0.2 && by_clock > 0.7 {
        return Found::Yes;
    }
    Found::No(format!(
        "by interrupts {with:.2} of the peak, {left:.2} left; by a clock {by_clock:.2}"
    ))
}

#[test]
fn interrupts_livelock_a_real_kernel_and_a_clock_does_not_e_96_e_100_e_102() {
    let Some((kit, _alone)) = kit() else { return };
    // The peak comes from a third of a second, in which others may have used the processor: only two measurements that
    // agree contradict it.
    let found = match livelock(&kit) {
        Found::No(first) => {
            println!("once more: {first}");
            livelock(&kit)
        }
        found => found,
    };
    match found {
        Found::Yes => {}
        Found::No(found) => panic!("{found}"),
        Found::Undecided(found) => println!("UNDECIDED: {found}"),
    }
}

#[test]
fn e_96_what_a_livelocked_guest_does_not_take_is_dropped_on_a_described_adapter() {
    let Some((kit, _alone)) = kit() else { return };
    let mut card = Description::plain("room for 400 frames of 90 bytes");
    card.buffers.memory = Bytes(36_000);
    let plan = Plan {
        modes: vec![Mode::Interrupts],
        loads: vec![1.0, 8.0],
        work: Duration::from_micros(20),
        lasts: Duration::from_millis(300),
        limit: Duration::from_secs(120),
        adapter: Some(card),
    };
    let measured = measure(&kit, &plan, &mut |_| {}).unwrap();
    let (passed, points) = (measured.passed.unwrap(), &measured.curves[0].points);
    println!("highest {:.0}/s, {passed:?}, {points:.3?}", measured.highest);
    let taken = measured.curves[0].driver.packets;
    assert!(passed.received as f64 >= taken && taken > 0.0, "{passed:?}, the driver took {taken}");
    let (load, share) = (points[1].offered / measured.highest, points[1].share);
    if share < SHARE_MIN || load < LOAD_MIN {
        return println!(
            "UNDECIDED: the guest's processor ran {share:.2} of the time, {load:.1} times its highest rate came"
        );
    }
    // Frames that the guest did not take cost it nothing: they are lost before its memory.
    assert!(passed.lost > 0, "{passed:?}");
}

#[test]
fn e_106_a_real_kernel_receives_in_a_thread_and_in_the_programs_calls() {
    let Some((kit, _alone)) = kit() else { return };
    let plan = Plan {
        modes: vec![Mode::Napi, Mode::Threaded, Mode::Busy],
        loads: vec![0.5, 8.0],
        work: Duration::from_micros(20),
        lasts: Duration::from_millis(300),
        limit: Duration::from_secs(120),
        adapter: None,
    };
    let measured = measure(&kit, &plan, &mut |_| {}).unwrap();
    println!("highest {:.0}/s", measured.highest);
    for curve in &measured.curves {
        println!("{} {:?}", curve.mode.name(), curve.driver);
        for point in &curve.points {
            println!("  {point:.3?}");
            assert!(point.processed > 0.0 && (0.0..=1.0).contains(&point.left), "{point:?}");
        }
        assert!(curve.driver.packets > 0.0 && curve.driver.receive > 0.0);
    }
    let [napi, threaded, busy] = &measured.curves[..] else { panic!("three modes") };
    let share = measured.curves.iter().flat_map(|curve| &curve.points).map(|point| point.share);
    let share = share.fold(1.0, f64::min);
    if share < SHARE_MIN {
        return println!("UNDECIDED: the guest's processor ran {share:.2} of the time");
    }
    // A thread shares the processor with the program, which a softirq does not.
    let kept = |curve: &Curve| curve.points[1].processed / curve.peak();
    assert!(kept(threaded) > 0.2, "{} of the peak", kept(threaded));
    // While the program polls, the interface does not interrupt.
    let each = |curve: &Curve| curve.driver.interrupts / curve.driver.packets;
    assert!(each(busy) < 0.5 * each(napi), "{} and {} a packet", each(busy), each(napi));
}

#[test]
fn a_driver_that_starts_while_frames_wait_receives_them_and_those_that_follow() {
    const STARTS: usize = 6;
    const RATE: f64 = 3000.0;
    // Two rings: what waited, and what came when the first was taken.
    const FRAMES: u64 = 512;
    let Some((kit, _alone)) = kit() else { return };
    let folder = Folder::new().unwrap();
    let socket = folder.path().join("wire");
    let listener = UnixListener::bind(&socket).unwrap();
    // Each start has five seconds.
    let start = format!(
        "insmod /lib/modules/lastmeter_net.ko mode=interrupt || exit 1\n\
         ip link set eth0 up\n\
         cd /sys/module/lastmeter_net/parameters; i=0\n\
         while [ $(cat packets) -lt {FRAMES} ] && [ $i -lt 100 ]; do usleep 50000; i=$((i+1)); done\n\
         echo took $(cat packets); cd /\n\
         ip link set eth0 down; rmmod lastmeter_net\n"
    );
    let modules = kit.modules().unwrap().into_iter().filter(|module| module != "virtio_net");
    let options = Options {
        network: Network::Stream(socket),
        modules: Some(modules.collect()),
        command: start.repeat(STARTS),
        limit: Duration::from_secs(40),
        ..Options::default()
    };
    let mut guest = Guest::start(&kit, &options).unwrap();
    let mut wire = Wire::new(listener.accept().unwrap().0).unwrap();
    let frame = Datagram { kind: Kind::Load, step: 0, from: 0, until: 0, sent: 0 };
    // Until the guest is gone.
    while wire.offer(frame, RATE, nanoseconds() + 20_000_000, 0).is_ok() {
        guest.in_time().unwrap();
    }
    let output = guest.output();
    let taken = output.lines().filter_map(|line| line.strip_prefix("took ")?.trim().parse().ok());
    let taken: Vec<u64> = taken.collect();
    println!("{taken:?}");
    let is_all = taken.len() == STARTS && taken.iter().all(|taken| *taken >= FRAMES);
    assert!(is_all, "{taken:?} {}", guest.console());
}
