//! What tests of both protocols need: memory between canaries, and two adapters on a cable.

pub(crate) mod client;

use lastmeter_base::Duration;
use lastmeter_guest::end::GuestEnd;
use lastmeter_guest::hub::{End, Hub, Running};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// Bytes before and after the guest's memory in its file, which nobody may touch.
pub(crate) const AROUND: usize = 1 << 16;
const CANARY: u8 = 0xa5;

pub(crate) fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// So much memory in a file, surrounded by what nobody may touch.
pub(crate) fn file(memory: usize, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, (memory + 2 * AROUND) as u64).unwrap();
    for at in [0, (AROUND + memory) as u64] {
        rustix::io::pwrite(&file, &[CANARY; AROUND], at).unwrap();
    }
    fcntl_add_seals(&file, seals).unwrap();
    file
}

pub(crate) fn is_untouched(file: &OwnedFd, memory: usize) -> bool {
    [0, (AROUND + memory) as u64].into_iter().all(|at| {
        let mut bytes = [0; AROUND];
        rustix::io::pread(file, &mut bytes, at).unwrap();
        bytes == [CANARY; AROUND]
    })
}

/// Two adapters on a cable, and where their guests connect.
pub(crate) struct Bench {
    running: Option<Running>,
    pub(crate) paths: [PathBuf; 2],
}

impl Bench {
    pub(crate) fn start(name: &str, end: impl Fn(UnixListener) -> GuestEnd) -> Bench {
        let path = |end| {
            let file = format!("lastmeter-bench-{}-{name}-{end}", std::process::id());
            std::env::temp_dir().join(file)
        };
        let paths = [path(0), path(1)];
        let ends = paths.each_ref().map(|path| {
            let _ = std::fs::remove_file(path);
            End::Guest(Box::new(end(UnixListener::bind(path).unwrap())))
        });
        let running = Hub::new(ends, Duration::ZERO).start(Duration::ZERO).unwrap();
        Bench { running: Some(running), paths }
    }

    /// Both ends as they are now.
    pub(crate) fn stop(mut self) -> Hub {
        let running = self.running.take().unwrap();
        running.stop().expect("the adapters' thread has not panicked")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.paths.iter().for_each(|path| std::fs::remove_file(path).unwrap_or_default());
    }
}
