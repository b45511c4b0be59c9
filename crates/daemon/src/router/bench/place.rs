//! Where a router is measured: three network namespaces in a row, made and removed by `ip`.
//!
//! ```text
//! source s0 ---- r0 router r1 ---- d0 sink
//! ```
//!
//! The source makes frames in the kernel on core 0. The router, and the thread of the kernel that receives for it,
//! run on core 1. The sink is a neighbour whose Ethernet address nobody has, so packets end as soon as they have
//! arrived; where the router forwards in its driver, they end in the sink's driver.

use super::READY;
use crate::Complaint;
use lastmeter_linux::counters::Counters;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The next router, which nobody is.
pub(super) const NEXT: &str = "10.2.0.9";
/// How many probes.
const PROBES: &str = "150";
/// Core of the source; core of the router.
const SOURCE: &str = "0";
const ROUTER: &str = "1";

/// The namespaces; removed when it is dropped.
pub(super) struct Place {
    names: [String; 3],
    pub(super) folder: PathBuf,
    children: Vec<Child>,
    /// What forwards instead of our router.
    peer: Option<u32>,
    /// A process in the sink's namespace, whose counters are read there at once, without a program of our own.
    witness: u32,
}

/// What was seen at one moment.
pub(super) struct Moment {
    at: Instant,
    /// Packets and bytes that the sink received.
    packets: u64,
    bytes: u64,
    /// CPU nanoseconds of the router and of the kernel's threads that work for it, and of the latter alone.
    cpu: u64,
    kernel: u64,
    /// All cores' times.
    counters: Counters,
}

/// What happened between two moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between {
    /// Packets that the source sent, a second; 0 if nobody asked it.
    pub(super) offered: f64,
    /// Packets that the sink received, a second.
    pub(super) rate: f64,
    /// Packets for each second of the router's CPU.
    pub(super) per_cpu: f64,
    /// Bits a second for each core.
    pub(super) bits_per_cpu: f64,
    /// Cores used.
    pub(super) cores: f64,
    /// The share of their time that the kernel's threads took to receive and to deliver.
    pub(super) kernel: f64,
    /// How much of the router's core others took.
    pub(super) others: f64,
}

/// Waits until a child says that it is ready.
fn ready(child: &mut Child, name: &str) -> Result<(), Complaint> {
    let mut line = [0; READY.len() + 1];
    let told = child.stdout.as_mut().map(|out| out.read_exact(&mut line));
    match told {
        Some(Ok(())) => Ok(()),
        _ => Err(Complaint(format!("{name} did not begin"))),
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), Complaint> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| Complaint(format!("{program}: {error}; is it installed?")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Complaint(format!("{program} {}: {said}", arguments.join(" "))))
}

impl Place {
    /// Makes it; `kernel` forwards, or somebody else.
    pub(super) fn new(kernel: bool) -> Result<Place, Complaint> {
        let own = std::process::id();
        let names = ["s", "r", "d"].map(|part| format!("lastmeter-{own}-{part}"));
        let folder = std::env::temp_dir().join(format!("lastmeter-router-{own}"));
        std::fs::create_dir_all(&folder)?;
        let mut place = Place { names, folder, children: Vec::new(), peer: None, witness: 0 };
        let [s, r, d] = &place.names.clone();
        for name in [s, r, d] {
            run("ip", &["netns", "add", name])?;
            run("ip", &["-n", name, "link", "set", "lo", "up"])?;
        }
        let pair = |a: (&str, &str, &str), b: (&str, &str, &str)| {
            let first = ["link", "add", a.1, "netns", a.0, "address", a.2, "type", "veth"];
            let second = ["peer", "name", b.1, "netns", b.0, "address", b.2];
            run("ip", &[&first[..], &second[..]].concat())
        };
        pair((s, "s0", "02:00:00:00:00:01"), (r, "r0", "02:00:00:00:00:02"))?;
        pair((r, "r1", "02:00:00:00:00:03"), (d, "d0", "02:00:00:00:00:04"))?;
        let ports = [
            (s, "s0", "10.1.0.1/16"),
            (r, "r0", "10.1.0.2/16"),
            (r, "r1", "10.2.0.1/16"),
            (d, "d0", "10.2.0.2/16"),
        ];
        for (name, port, address) in ports {
            place.sysctl(name, &format!("net/ipv6/conf/{port}/disable_ipv6"), "1")?;
            run("ip", &["-n", name, "addr", "add", address, "dev", port])?;
            run("ip", &["-n", name, "link", "set", port, "up"])?;
        }
        place.sysctl(r, "net/ipv4/ip_forward", if kernel { "1" } else { "0" })?;
        let nobody = "02:00:00:00:00:99";
        let add =
            ["-n", r, "neigh", "add", NEXT, "lladdr", nobody, "dev", "r1", "nud", "permanent"];
        run("ip", &add)?;
        let add = ["-n", r, "neigh", "add", "10.1.0.1", "lladdr", "02:00:00:00:00:01", "dev", "r0"];
        run("ip", &[&add[..], &["nud", "permanent"]].concat())?;
        // For probes to and fro.
        for (name, via) in [(s, "10.1.0.2"), (d, "10.2.0.1")] {
            run("ip", &["-n", name, "route", "add", "default", "via", via])?;
        }
        // A veth pair only has a thread of the kernel for what arrives if its peer does not merge packets.
        run("ip", &["netns", "exec", s, "ethtool", "-K", "s0", "tso", "off"])?;
        if kernel {
            run("ip", &["netns", "exec", r, "ethtool", "-K", "r0", "gro", "on"])?;
            run("ip", &["netns", "exec", r, "ethtool", "-K", "r1", "gro", "on"])?;
        }
        place.witness()?;
        Ok(place)
    }
    /// Starts the witness, and waits until it is in the sink's namespace.
    fn witness(&mut self) -> Result<(), Complaint> {
        let child = Command::new("ip")
            .args(["netns", "exec", &self.names[2], "sleep", "infinity"])
            .stdin(Stdio::null())
            .spawn()?;
        self.witness = child.id();
        self.children.push(child);
        let began = Instant::now();
        while self.arrived().is_err() {
            if began.elapsed() > Duration::from_secs(10) {
                return Err("the sink's namespace cannot be seen".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
    /// Packets and bytes that the sink has received.
    fn arrived(&self) -> Result<[u64; 2], Complaint> {
        let text = std::fs::read_to_string(format!("/proc/{}/net/dev", self.witness))?;
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("d0:"));
        let mut words = line.ok_or("no sink")?.split_whitespace().map(str::parse::<u64>);
        match (words.next(), words.next()) {
            (Some(Ok(bytes)), Some(Ok(packets))) => Ok([packets, bytes]),
            _ => Err("the sink's counters cannot be read".into()),
        }
    }
    fn sysctl(&self, name: &str, key: &str, value: &str) -> Result<(), Complaint> {
        let path = format!("/proc/sys/{key}");
        run("ip", &["netns", "exec", name, "sh", "-c", &format!("echo {value} > {path}")])
    }
    /// Gives the kernel these routes.
    pub(super) fn routes(&self, batch: &Path) -> Result<(), Complaint> {
        let file = batch.to_string_lossy();
        run("ip", &["-n", &self.names[1], "-batch", &file])
    }
    /// A program in the router's namespace, on the router's core.
    pub(super) fn router(&mut self, arguments: &[&str]) -> Result<(), Complaint> {
        let program = std::env::current_exe()?;
        let log = std::fs::File::create(self.folder.join("router.log"))?;
        let child = Command::new("ip")
            .args(["netns", "exec", &self.names[1], "taskset", "-c", ROUTER])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.children.push(child);
        Ok(())
    }
    /// What arrives at the router is received by a thread of the kernel on the router's core.
    pub(super) fn threaded(&self) -> Result<(), Complaint> {
        let write = "echo 1 > /sys/class/net/r0/threaded";
        run("ip", &["netns", "exec", &self.names[1], "sh", "-c", write])?;
        std::thread::sleep(Duration::from_millis(100));
        for thread in self.receivers() {
            run("taskset", &["-p", "-c", ROUTER, &thread.to_string()])?;
        }
        Ok(())
    }
    /// Frames for the router, which have begun when this returns.
    pub(super) fn source(
        &mut self,
        len: usize,
        rate: f64,
        list: &Path,
        seconds: f64,
    ) -> Result<Child, Complaint> {
        let program = std::env::current_exe()?;
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.names[0], "taskset", "-c", SOURCE])
            .arg(program)
            .args([
                "router",
                "generate",
                "s0",
                "--len",
                &len.to_string(),
                "--rate",
                &rate.to_string(),
            ])
            .args(["--seconds", &seconds.to_string(), "--destinations"])
            .arg(list)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        ready(&mut child, "the source")?;
        Ok(child)
    }
    /// Leaves a program at interfaces of the namespace with this number, as long as this place is; its process.
    fn stand(&mut self, name: usize, what: &str, interfaces: &[&str]) -> Result<u32, Complaint> {
        let program = std::env::current_exe()?;
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.names[name], "taskset", "-c", ROUTER])
            .arg(program)
            .args(["router", "stand", what])
            .args(interfaces)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let process = child.id();
        let told = ready(&mut child, what);
        self.children.push(child);
        told.map(|()| process)
    }
    /// Our own forwarder of this name in the router's place.
    pub(super) fn forwarder(&mut self, what: &str) -> Result<(), Complaint> {
        self.peer = Some(self.stand(1, what, &["r0", "r1"])?);
        Ok(())
    }
    /// Another's program in the router's place, on its core, which forwards after so long.
    pub(super) fn program(
        &mut self,
        program: &str,
        arguments: &[String],
        starts: Duration,
    ) -> Result<(), Complaint> {
        let path = self.folder.join("peer.log");
        let log = std::fs::File::create(&path)?;
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.names[1], "taskset", "-c", ROUTER, program])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        std::thread::sleep(starts);
        let ended = child.try_wait()?;
        self.peer = Some(child.id());
        self.children.push(child);
        match ended {
            None => Ok(()),
            Some(_) => {
                let said = std::fs::read_to_string(path).unwrap_or_default();
                Err(Complaint(format!("{program} did not begin: {}", said.trim())))
            }
        }
    }
    /// What arrives is received by the kernel, but is for another host, so that it drops its own copy at once.
    pub(super) fn not_for_the_kernel(&self) -> Result<(), Complaint> {
        let router = &self.names[1];
        let other = ["set", "r0", "address", "02:00:00:00:00:77"];
        run("ip", &[&["-n", router, "link"][..], &other].concat())?;
        // Without a program, only what merges packets has a thread that receives.
        run("ip", &["netns", "exec", router, "ethtool", "-K", "r0", "gro", "on"])
    }
    /// The sink drops frames in its driver, which must have a program to get what is redirected to it.
    pub(super) fn sink(&mut self) -> Result<(), Complaint> {
        self.stand(2, "sink", &["d0"]).map(|_| ())
    }
    /// What arrives is forwarded in the driver, to where the kernel's table says.
    pub(super) fn kernel_lookup(&mut self) -> Result<(), Complaint> {
        self.stand(1, "kernel-lookup", &["r0"]).map(|_| ())
    }
    /// The median round trip of some probes from the source's host, in seconds; `None` if none came back.
    pub(super) fn trip(&self, to: &str) -> Result<Option<f64>, Complaint> {
        let output = Command::new("ip")
            .args(["netns", "exec", &self.names[0], "chrt", "-f", "50", "ping", "-n"])
            .args(["-i", "0.002", "-c", PROBES, "-W", "1", to])
            .stdin(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let times = text.lines().filter_map(|line| line.split_once("time=")?.1.split_once(' '));
        let mut times: Vec<f64> = times.filter_map(|(ms, _)| ms.parse().ok()).collect();
        times.sort_by(f64::total_cmp);
        Ok(times.get(times.len() / 2).map(|ms| ms / 1e3))
    }
    /// Threads of the kernel that receive for the router.
    fn receivers(&self) -> Vec<u32> {
        processes(|comm, _| comm.starts_with("napi/r0"))
    }
    /// Threads of the kernel that work for the router: what receives, and what delivers to the sink when that is more
    /// than the router's own calls have time for.
    fn threads(&self) -> Vec<u32> {
        let delivers = format!("ksoftirqd/{ROUTER}");
        processes(|comm, _| comm.starts_with("napi/r0") || comm == delivers)
    }
    /// Resident memory of the router's processes.
    pub(super) fn memory(&self) -> u64 {
        let own = self.own().into_iter();
        let lines = own.map(|own| lines_of(&format!("/proc/{own}/status"), &["VmRSS:"]));
        lines.sum()
    }
    /// The router's processes, or that of what forwards instead.
    fn own(&self) -> Vec<u32> {
        let folder = self.folder.to_string_lossy().into_owned();
        let mut own = processes(|comm, line| comm == "lastmeterd" && line.contains(&folder));
        own.extend(self.peer);
        own
    }
    /// What is seen now.
    pub(super) fn now(&self) -> Result<Moment, Complaint> {
        let ([packets, bytes], at) = (self.arrived()?, Instant::now());
        let kernel: u64 = self.threads().into_iter().map(cpu_of).sum();
        let cpu = kernel + self.own().into_iter().map(cpu_of).sum::<u64>();
        let counters = Counters::now(&[])?;
        Ok(Moment { at, packets, bytes, cpu, kernel, counters })
    }
}

impl Moment {
    pub(super) fn until(self, later: Moment) -> Between {
        let seconds = (later.at - self.at).as_secs_f64();
        let (packets, bytes) = (later.packets - self.packets, later.bytes - self.bytes);
        let cpu = later.cpu.saturating_sub(self.cpu) as f64 / 1e9;
        let cores = later.counters.since(&self.counters).cpus;
        let busy =
            ROUTER.parse().ok().and_then(|core: usize| cores.get(core)).map_or(0.0, |core| {
                core.user + core.system + core.interrupt + core.softirq + core.steal
            });
        Between {
            offered: 0.0,
            rate: packets as f64 / seconds,
            per_cpu: packets as f64 / cpu.max(1e-9),
            bits_per_cpu: bytes as f64 * 8.0 / cpu.max(1e-9),
            cores: cpu / seconds,
            kernel: later.kernel.saturating_sub(self.kernel) as f64 / 1e9 / cpu.max(1e-9),
            others: ((busy - cpu) / seconds).max(0.0),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.peer = None;
        for process in self.own() {
            let _ = run("kill", &["-9", &process.to_string()]);
        }
        // The kernel's routes go with the link, before this returns; those of a namespace go at some time after it.
        let _ = run("ip", &["-n", &self.names[1], "link", "del", "r1"]);
        for name in &self.names {
            let _ = run("ip", &["netns", "del", name]);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Waits until a source has ended; the packets a second that it sent.
pub(super) fn offered(source: Child) -> Result<f64, Complaint> {
    let output = source.wait_with_output()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<&str> = told.split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
    match (number(0), number(3)) {
        (Some(frames), Some(seconds)) if seconds > 0.0 => Ok(frames / seconds),
        _ => Err(Complaint(format!("the source said {:?}", told.trim()))),
    }
}

/// Kibibytes of these lines of a file of /proc, as bytes in sum.
fn lines_of(file: &str, names: &[&str]) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        names.contains(&words.next()?).then(|| words.next()?.parse::<u64>().ok()).flatten()
    });
    lines.sum::<u64>() << 10
}

/// What the kernel has for itself, its routes among it.
pub(super) fn kernel_memory() -> u64 {
    lines_of("/proc/meminfo", &["Slab:", "VmallocUsed:", "Percpu:"])
}

/// Processes by name and command line.
fn processes(wanted: impl Fn(&str, &str) -> bool) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|number| {
            let read =
                |what: &str| std::fs::read(format!("/proc/{number}/{what}")).unwrap_or_default();
            let comm = String::from_utf8_lossy(&read("comm")).trim().to_owned();
            let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            *number != std::process::id() && wanted(&comm, &line)
        })
        .collect()
}

/// CPU nanoseconds of all threads of a process.
fn cpu_of(process: u32) -> u64 {
    let threads =
        std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let spent = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    spent.sum()
}
