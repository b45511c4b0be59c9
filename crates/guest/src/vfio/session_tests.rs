//! Sessions with descriptors that are numbers.

use super::super::config::{DEVICE, VENDOR};
use super::super::message::tests::any_request;
use super::*;
use crate::device::{Interrupt, RECEIVE, TRANSMIT};
use crate::registers::driver::{MEMORY, Nic};
use lastmeter_base::Duration;
use lastmeter_host::adapter::description::Description;
use proptest::prelude::*;

const HELLO: Request = Request::Version { major: 0, minor: 1, capabilities: Vec::new() };
const RAM: Mapping = Mapping { writable: true, offset: 0, address: 0, size: MEMORY as u64 };

/// Memory is fresh, and as long as stated.
fn map(region: &Region, _: &u32) -> Result<Foreign, String> {
    let len = usize::try_from(region.size).ok().filter(|&len| (1..=1 << 22).contains(&len));
    let fresh = |len| Foreign::fresh(len).map_err(|why| why.to_string());
    len.ok_or_else(|| "too long".to_owned()).and_then(fresh)
}

struct Bench {
    session: Session<u32>,
    device: Device,
}

impl Bench {
    fn new() -> Bench {
        let device = Device::new(Description::plain("a card"));
        Bench { session: Session::new(Function::simple([2; 6])), device }
    }

    fn ask(&mut self, request: &Request, fds: &[u32]) -> Result<Vec<u8>, Wrong> {
        self.session.handle(Time::START, request, fds.to_vec(), &map, &mut self.device)
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<Vec<u8>, Wrong> {
        let access = Access { region, offset, count: data.len() as u32 };
        self.ask(&Request::Write(access, data.to_vec()), &[])
    }

    fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, Wrong> {
        let access = Access { region, offset, count };
        self.ask(&Request::Read(access), &[]).map(|reply| reply[16..].to_vec())
    }

    /// As QEMU and a driver do.
    fn start() -> (Bench, Nic) {
        let mut bench = Bench::new();
        bench.ask(&HELLO, &[]).unwrap();
        bench.ask(&Request::Map(RAM), &[9]).unwrap();
        bench.write(CONFIG, 4, &[6, 0]).unwrap();
        let vectors = Vectors { flags: EVENTFDS | TRIGGER, index: MSI_X, start: 0, count: 2 };
        bench.ask(&Request::SetIrqs(vectors), &[20, 21]).unwrap();
        let (mut nic, mut writes) = (Nic::default(), Vec::new());
        nic.start(bench.session.memory(), &mut |at, value| writes.push((at, value))).unwrap();
        for (at, value) in writes {
            bench.write(BAR_0, at, &value.to_le_bytes()).unwrap();
        }
        (bench, nic)
    }
}

#[test]
fn a_client_finds_a_pci_device_with_registers_and_two_vectors() {
    let mut bench = Bench::new();
    let version = bench.ask(&HELLO, &[]).unwrap();
    assert_eq!((&version[..4], version.last()), (&[0; 4][..], Some(&0)));
    assert!(String::from_utf8_lossy(&version).contains("\"max_data_xfer_size\":4096"));
    assert_eq!(bench.ask(&Request::Info, &[]), Ok(words(&[16, 3, 9, 5])));
    let region = |index, flags, size| Ok(words(&[32, flags, index, 0, size, 0, 0, 0]));
    assert_eq!(bench.ask(&Request::RegionInfo(0), &[]), region(0, 3, 0x4000));
    assert_eq!(bench.ask(&Request::RegionInfo(1), &[]), region(1, 0, 0));
    assert_eq!(bench.ask(&Request::RegionInfo(7), &[]), region(7, 3, 256));
    assert_eq!(bench.ask(&Request::IrqInfo(2), &[]), Ok(words(&[16, 1, 2, 2])));
    assert_eq!(bench.ask(&Request::IrqInfo(0), &[]), Ok(words(&[16, 0, 0, 0])));
    let ids = [VENDOR.to_le_bytes(), DEVICE.to_le_bytes()].concat();
    assert_eq!(bench.read(CONFIG, 0, 4), Ok(ids));
    assert_eq!(bench.read(BAR_0, 0, 8).unwrap()[..4], *b"LMN1");
    assert_eq!(bench.read(BAR_0, 0x11, 1), Ok(vec![2]), "a byte of the address");
}

#[test]
fn a_driver_runs_the_device_through_its_region() {
    let (mut bench, mut nic) = Bench::start();
    assert_eq!(bench.session.interrupt(RECEIVE), Some(&20));
    assert_eq!(bench.session.interrupt(TRANSMIT), Some(&21));
    assert!(nic.send(bench.session.memory(), &[1; 60]).unwrap());
    bench.write(BAR_0, 0x154, &1u32.to_le_bytes()).unwrap();
    let now = Time::START + Duration::from_us(1);
    bench.device.advance(now, bench.session.memory());
    assert_eq!(bench.device.departures().len(), 1);
    assert_eq!(bench.device.interrupts(), [Interrupt { at: Time::START, ring: TRANSMIT }]);
    // Without the right to reach memory, nothing runs.
    bench.write(CONFIG, 4, &[2, 0]).unwrap();
    assert_eq!(bench.read(BAR_0, 0x10c, 4), Ok(vec![0; 4]));
    bench.write(BAR_0, 0x10c, &[1, 0, 0, 0]).unwrap();
    assert_eq!(bench.read(BAR_0, 0x10c, 4), Ok(vec![0; 4]));
    // After a reset, it is as after power-on.
    bench.ask(&Request::Reset, &[]).unwrap();
    assert_eq!(
        (bench.read(BAR_0, 0x148, 4), bench.read(CONFIG, 4, 1)),
        (Ok(vec![0; 4]), Ok(vec![0]))
    );
}

#[test]
fn memory_that_is_taken_away_is_not_reached() {
    let (mut bench, mut nic) = Bench::start();
    assert!(nic.send(bench.session.memory(), &[1; 60]).unwrap());
    let all = Request::Unmap { address: 0, size: MEMORY as u64, all: false };
    assert_eq!(bench.ask(&all, &[]), Ok(all.emit().1));
    assert_eq!(bench.ask(&all, &[]), Err(Wrong::Unknown(0)));
    bench.write(BAR_0, 0x154, &1u32.to_le_bytes()).unwrap();
    assert_eq!(bench.read(BAR_0, 8, 4), Ok(vec![1, 2, 0, 0]), "the transmit ring is broken");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(&Request::Info, &[]), Err(Wrong::Version(0)), "no version yet");
    bench.ask(&HELLO, &[]).unwrap();
    assert_eq!(bench.ask(&HELLO, &[]), Err(Wrong::Version(0)), "one already");
    bench.ask(&Request::Map(RAM), &[9]).unwrap();
    for mapping in [RAM, Mapping { size: 0, ..RAM }, Mapping { address: u64::MAX - 9, ..RAM }] {
        assert!(matches!(bench.ask(&Request::Map(mapping), &[9]), Err(Wrong::Memory(_))));
    }
    let rest = Mapping { address: 1 << 32, size: 4096, ..RAM };
    assert_eq!(bench.ask(&Request::Map(rest), &[1, 2]), Err(Wrong::Descriptors(2)));
    for number in 0..MAPPINGS_MAX as u64 - 1 {
        let next = Mapping { address: rest.address + 4096 * number, ..rest };
        bench.ask(&Request::Map(next), &[]).unwrap();
    }
    let one = Mapping { address: 1 << 40, ..rest };
    assert_eq!(bench.ask(&Request::Map(one), &[]).unwrap_err().number(), 28);
    assert_eq!(bench.ask(&Request::RegionInfo(9), &[]), Err(Wrong::Index(9)));
    assert!(bench.read(BAR_0, 0x3fff, 2).is_err() && bench.read(3, 0, 1).is_err());
    assert!(bench.read(BAR_0, u64::MAX, 2).is_err() && bench.read(BAR_0, 0, 4097).is_err());
    assert!(bench.write(BAR_0, 2, &[0; 4]).is_err() && bench.write(BAR_0, 0, &[0; 3]).is_err());
    let vectors = Vectors { flags: EVENTFDS | TRIGGER, index: MSI_X, start: 1, count: 2 };
    assert_eq!(bench.ask(&Request::SetIrqs(vectors), &[1, 2]), Err(Wrong::Vectors(vectors)));
    let one = Vectors { start: 0, count: 1, ..vectors };
    assert_eq!(bench.ask(&Request::SetIrqs(one), &[1, 2]), Err(Wrong::Descriptors(2)));
    assert_eq!(bench.ask(&Request::Info, &[7]), Err(Wrong::Descriptors(1)));
    assert_eq!(bench.ask(&Request::Other(11), &[]).unwrap_err().number(), 95);
}

proptest! {
    #[test]
    fn any_requests_in_any_order_are_answered_or_refused(
        requests in prop::collection::vec((any_request(), 0usize..3), 1..80),
    ) {
        let (mut bench, _) = Bench::start();
        for (request, fds) in requests {
            let _ = bench.ask(&request, &[1, 2][..fds]);
            bench.device.arrive(Time::START, vec![1; 60], bench.session.memory());
            prop_assert!(bench.session.memory().count() <= MAPPINGS_MAX);
        }
        bench.session.end(&mut bench.device);
        prop_assert!(bench.device.registers_ring(RECEIVE).is_none());
    }
}
