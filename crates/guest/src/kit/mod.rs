//! The guest kit: an unmodified Linux in QEMU's software emulation, one command in it, and what it had to say.
//!
//! ```text
//! target/guest/kernel, root ----.
//! [Options]: command, modules --> initial file system --> QEMU --> console      kernel's messages
//!            network (vhost-user socket, stream)                   report       status, samples of /proc
//!                                                                  output       what the command writes
//! ```
//!
//! `make guest` fills `target/guest` (`scripts/guest`): Debian's kernel for clouds, busybox, iperf3, and this
//! project's driver and programs. The guest is a q35 machine with qboot instead of a BIOS, which of the machines that
//! have PCI and can power off was the quickest here: 4 to 5 s from start to end with an empty command (SeaBIOS takes
//! 0.3 s more; without ACPI it would take 1 s less, but cannot have two processors; `microvm` did not boot this kernel
//! with PCI). It has neither disk nor display.
//!
//! A guest ends with its command, at its time limit, when its [`Guest`] is dropped, or when the thread that started it
//! ends.

mod archive;
mod error;
mod options;
mod report;

pub use archive::{Archive, BYTES_MAX, FILES_MAX};
use error::doing;
pub use error::{Error, Result};
pub use options::{Network, Options};
pub use report::{Report, SAMPLE_MAX, SAMPLES_MAX, Sample, fuzz};

use rustix::process::{Pid, setpriority_process};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const INIT: &str = include_str!("init.sh");
const QEMU: &str = "qemu-system-x86_64";
/// A later QEMU than the host's, with its libraries, in the kit.
const LATER: &str = "qemu";
/// Bytes of each serial port that are kept; more are read and dropped.
pub const TEXT_MAX: usize = 4 << 20;
/// A line of the report, at most.
const LINE_MAX: u64 = 1 << 16;
/// How often a guest is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// Lines of the console that an error shows.
const TAIL: usize = 12;

/// A folder that `make guest` filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kit {
    folder: PathBuf,
}

impl Kit {
    /// The kit of the folder in `LASTMETER_GUEST`, of `target/guest`, or beside the program's own folder.
    ///
    /// # Errors
    /// [`Error::Missing`]: there is none, or it has no kernel, no busybox, or QEMU is missing.
    pub fn find() -> Result<Kit> {
        let named = std::env::var_os("LASTMETER_GUEST").map(PathBuf::from);
        let beside = || {
            let program = std::env::current_exe().ok()?;
            program
                .ancestors()
                .map(|folder| folder.join("guest"))
                .find(|at| at.join("root").is_dir())
        };
        let here = PathBuf::from("target/guest");
        match named {
            Some(folder) => Kit::at(&folder),
            None if here.is_dir() => Kit::at(&here),
            None => Kit::at(&beside().unwrap_or(here)),
        }
    }

    /// The kit of a folder.
    ///
    /// # Errors
    /// As [`Kit::find`].
    pub fn at(folder: &Path) -> Result<Kit> {
        for piece in ["kernel", "modules", "root/bin/busybox"] {
            let path = folder.join(piece);
            if !path.is_file() {
                return Err(Error::Missing(path.display().to_string()));
            }
        }
        for program in [QEMU, "setpriv"] {
            if which(program).is_none() {
                return Err(Error::Missing(program.to_owned()));
            }
        }
        Ok(Kit { folder: folder.to_owned() })
    }

    /// Whether a program is in the guest.
    pub fn has(&self, program: &str) -> bool {
        self.folder.join("root/bin").join(program).is_file()
    }

    /// Whether there is a QEMU with a client of vfio-user, 10.1 or later.
    pub fn has_vfio(&self) -> bool {
        self.folder.join(LATER).join("qemu").is_file()
    }

    /// The words that start a QEMU for these options.
    ///
    /// # Errors
    /// [`Error::Missing`]: there is none that can do it.
    fn qemu(&self, options: &Options) -> Result<Vec<String>> {
        if !matches!(options.network, Network::VfioUser(_)) {
            return Ok(vec![QEMU.to_owned()]);
        }
        if !self.has_vfio() {
            return Err(Error::Missing("a QEMU with vfio-user, 10.1 or later,".to_owned()));
        }
        let at = |name: &str| self.folder.join(LATER).join(name).display().to_string();
        // Its libraries are later than the host's, its C library among them.
        let words = [at("lib/ld.so"), "--library-path".to_owned(), at("lib"), at("qemu")];
        Ok([&words[..], &["-L".to_owned(), at("share")]].concat())
    }

    /// Whether a module is in the guest, without `.ko`.
    pub fn has_module(&self, module: &str) -> bool {
        self.folder.join("root/lib/modules").join(format!("{module}.ko")).is_file()
    }

    /// The modules of a stock guest with a virtio network interface, in the order in which they are loaded.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn modules(&self) -> Result<Vec<String>> {
        let text =
            doing("reading the guest's modules", fs::read_to_string(self.folder.join("modules")))?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    /// The initial file system for `options`.
    fn archive(&self, options: &Options) -> Result<Vec<u8>> {
        let modules = match &options.modules {
            Some(modules) => modules.clone(),
            None => self.modules()?,
        };
        let address = options.address.as_deref().unwrap_or_default();
        let interval =
            options.interval.map_or(String::new(), |each| format!("{:.3}", each.as_secs_f64()));
        let conf = format!(
            "MODULES={}\nADDRESS={}\nINTERVAL={}\n",
            quoted(&modules.join(" ")),
            quoted(address),
            quoted(&interval)
        );
        let write = || {
            let mut archive = Archive::default();
            archive.tree(&self.folder.join("root"))?;
            for folder in ["dev", "proc", "sys", "tmp"] {
                archive.folder(folder)?;
            }
            archive.device("dev/console", (5, 1))?;
            archive.file("init", INIT.as_bytes())?;
            archive.file("guest.conf", conf.as_bytes())?;
            archive.file("command", options.command.as_bytes())?;
            for (name, content) in &options.files {
                archive.file(name, content)?;
            }
            archive.end()
        };
        doing("writing the guest's initial file system", write())
    }
}

/// A word of the guest's shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Where root's path of a user lacks them.
    let more = ["/usr/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|folder| folder.join(program))
        .find(|at| at.is_file())
}

/// A folder for sockets and files of a guest, which only its owner can enter; removed when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A new one.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> Result<Folder> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lastmeter-guest-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        doing(&format!("making {}", path.display()), made)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Text = Arc<Mutex<String>>;

/// A guest that runs.
#[derive(Debug)]
pub struct Guest {
    qemu: Child,
    since: Instant,
    limit: Duration,
    console: Text,
    output: Text,
    report: Arc<Mutex<Report>>,
    readers: Vec<JoinHandle<()>>,
    _folder: Folder,
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The command's exit status.
    pub status: i32,
    /// What the kernel and the first process wrote.
    pub console: String,
    /// What the command wrote, on both of its outputs.
    pub output: String,
    /// The agent's samples and more.
    pub report: Report,
    /// Wall-clock time from start to end.
    pub lasted: Duration,
}

impl Guest {
    /// Starts a guest.
    ///
    /// # Errors
    /// A piece of the kit is missing, or QEMU does not start.
    pub fn start(kit: &Kit, options: &Options) -> Result<Guest> {
        let folder = Folder::new()?;
        let archive = kit.archive(options)?;
        doing(
            "writing the guest's initial file system",
            fs::write(folder.0.join("initrd"), archive),
        )?;
        let listen =
            |name: &str| doing("opening a serial port", UnixListener::bind(folder.0.join(name)));
        let (report_port, output_port) = (listen("report")?, listen("output")?);
        // It does not outlive the thread that starts it, however that ends.
        let mut command = Command::new(which("setpriv").unwrap_or_else(|| "setpriv".into()));
        command.args(["--pdeathsig", "KILL"]).args(kit.qemu(options)?);
        command.args(options.arguments(kit, &folder.0));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let since = Instant::now();
        let mut qemu = doing("starting QEMU", command.spawn())?;
        if let (Some(nice), Some(pid)) = (options.nice, Pid::from_raw(qemu.id().cast_signed())) {
            // Without the rights, it runs like any other program.
            let _ = setpriority_process(Some(pid), nice);
        }
        let (console, output) = (Text::default(), Text::default());
        let report = Arc::new(Mutex::new(Report::default()));
        let mut readers = Vec::new();
        if let Some(pipe) = qemu.stdout.take() {
            readers.push(keep(pipe, &console));
        }
        if let Some(pipe) = qemu.stderr.take() {
            readers.push(keep(pipe, &console));
        }
        let mut guest = Guest {
            qemu,
            since,
            limit: options.limit,
            console,
            output: Arc::clone(&output),
            report: Arc::clone(&report),
            readers,
            _folder: folder,
        };
        // QEMU connects before it starts the guest.
        let port = guest.accept(&report_port)?;
        guest.readers.push(thread::spawn(move || follow(port, &report)));
        let port = guest.accept(&output_port)?;
        guest.readers.push(keep(port, &output));
        Ok(guest)
    }

    fn accept(&mut self, listener: &UnixListener) -> Result<std::os::unix::net::UnixStream> {
        doing("opening a serial port", listener.set_nonblocking(true))?;
        loop {
            match listener.accept() {
                Ok((port, _)) => {
                    doing("opening a serial port", port.set_nonblocking(false))?;
                    return Ok(port);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return doing("opening a serial port", Err(error)),
            }
            if self.has_ended()? {
                self.close();
                let found = "did not start".to_owned();
                return Err(Error::Ended { found, console: self.tail() });
            }
            self.in_time()?;
            thread::sleep(LOOK);
        }
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(doing("looking after QEMU", self.qemu.try_wait())?.is_some())
    }

    /// Ends the guest if its time is over.
    ///
    /// # Errors
    /// It was.
    pub fn in_time(&mut self) -> Result<()> {
        if self.since.elapsed() < self.limit {
            return Ok(());
        }
        self.close();
        Err(Error::Limit { limit: self.limit, console: self.tail() })
    }

    /// Ends QEMU, and reads what is left.
    fn close(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }

    /// The number of QEMU's process.
    pub fn process(&self) -> u32 {
        self.qemu.id()
    }

    /// Time for which the host has run the guest's processors.
    pub fn processor_time(&self) -> Option<Duration> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.qemu.id())).ok()?;
        let folders = tasks.flatten().map(|task| task.path());
        let processors = folders.filter(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("CPU "))
        });
        let used = processors.filter_map(|task| {
            let text = fs::read_to_string(task.join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        Some(Duration::from_nanos(used.sum()))
    }

    /// What the command has written so far.
    pub fn output(&self) -> String {
        locked(&self.output).clone()
    }

    /// What the kernel has written so far.
    pub fn console(&self) -> String {
        locked(&self.console).clone()
    }

    /// What the agent has said so far.
    pub fn report(&self) -> Report {
        locked(&self.report).clone()
    }

    /// The last lines of console and output.
    fn tail(&self) -> String {
        let text = self.console() + &self.output();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Waits until `is_there` finds what it looks for in the guest.
    ///
    /// # Errors
    /// The guest ended before, or its time is over.
    pub fn until<T>(&mut self, mut is_there: impl FnMut(&Guest) -> Option<T>) -> Result<T> {
        loop {
            if let Some(found) = is_there(self) {
                return Ok(found);
            }
            if self.has_ended()? {
                self.close();
                // It may have been said just before the end.
                let ended =
                    || Error::Ended { found: "ended too early".to_owned(), console: self.tail() };
                return is_there(self).ok_or_else(ended);
            }
            self.in_time()?;
            thread::sleep(LOOK);
        }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The command's status did not come, or not in time; QEMU is ended then.
    pub fn wait(mut self) -> Result<Ended> {
        while !self.has_ended()? {
            self.in_time()?;
            thread::sleep(LOOK);
        }
        self.close();
        let report = self.report();
        let Some(status) = report.status else {
            let found = "ended without its command's status".to_owned();
            return Err(Error::Ended { found, console: self.tail() });
        };
        let (console, output) = (self.console(), self.output());
        Ok(Ended { status, console, output, report, lasted: self.since.elapsed() })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.close();
    }
}

fn locked<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what a port says, up to [`TEXT_MAX`].
fn keep(mut port: impl Read + Send + 'static, text: &Text) -> JoinHandle<()> {
    let text = Arc::clone(text);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = port.read(&mut buffer) {
            let mut text = locked(&text);
            let room = TEXT_MAX.saturating_sub(text.len());
            let said = String::from_utf8_lossy(&buffer[..len]);
            text.extend(said.chars().filter(|c| *c != '\r').take(room));
        }
    })
}

/// Reads the agent's report.
fn follow(port: impl Read, report: &Mutex<Report>) {
    let mut port = BufReader::new(port);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut port).take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(1..) => {
                locked(report).line(String::from_utf8_lossy(&line).trim_end_matches('\n'));
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_piece_says_how_to_get_it() {
        let error = Kit::at(Path::new("/nonexistent")).unwrap_err().to_string();
        assert_eq!(error, "/nonexistent/kernel is missing: run `make guest`");
    }

    #[test]
    fn words_of_the_shell_stay_words() {
        assert_eq!(quoted("a 'b' $c"), "'a '\\''b'\\'' $c'");
    }
}
