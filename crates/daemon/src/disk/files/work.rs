//! A file system's work, in a process whose mounts go with it: files made, read after the kernel has forgotten them,
//! and removed, on a loop device on a file, which is nbdfuse's where the disk is ours.

use crate::{Complaint, Report};
use lastmeter_linux::counters::Counters;
use rustix::fs::{Advice, fadvise, syncfs};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a file.
const FILE_LEN: usize = 100_000;
/// What is done, in this order.
pub(super) const PHASES: [&str; 3] = ["make", READ, "remove"];
pub(super) const READ: &str = "read";
/// Bytes of single requests.
const LENGTHS: [usize; 2] = [4 << 10, 128 << 10];
/// The file that nbdfuse makes.
const FUSE_FILE: &str = "nbd";
/// How long programs have to begin.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(crate) struct Work {
    /// The folder, of the disk's file if it is ours
    folder: PathBuf,
    /// A file of this host instead
    #[arg(long)]
    local: Option<PathBuf>,
    /// The disk's process
    #[arg(long)]
    process: Option<u32>,
    /// Files to make
    #[arg(long)]
    files: u32,
    /// Seconds of each kind of single request before
    #[arg(long, default_value_t = 0.0)]
    single: f64,
}

/// What a part of the work took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Phase {
    pub(super) name: String,
    pub(super) seconds: f64,
    /// Seconds of all processors.
    pub(super) machine: f64,
    /// Of the disk's process.
    pub(super) disk: f64,
    /// What the disk was asked for.
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

/// What a request by itself takes, on average.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Single {
    pub(super) write: bool,
    pub(super) length: usize,
    pub(super) latency: f64,
    pub(super) machine: f64,
    pub(super) disk: f64,
}

/// What the process says at its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Said {
    pub(super) phases: Vec<Phase>,
    pub(super) singles: Vec<Single>,
}

/// Seconds that the threads of a process ran, as its scheduler counts.
fn ran(process: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of = |path: PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    tasks.filter_map(|task| of(task.path())).sum::<f64>() / 1e9
}

impl Work {
    /// What the disk was asked for so far: requests and bytes.
    fn asked(&self) -> Result<(u64, u64), Complaint> {
        if self.process.is_none() {
            return Ok((0, 0));
        }
        let mut show = Command::new(std::env::current_exe()?);
        show.args(["disk", "show", "--json"]).arg(self.folder.join("disk.toml"));
        let output = show.output()?;
        let ledger: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("the disk's ledger: {error}"))?;
        let delivered = &ledger["paths"][0]["totals"]["delivered"];
        let number = |key: &str| delivered[key].as_u64().unwrap_or(0);
        Ok((number("packets"), number("bytes")))
    }
    /// Measures what is done meanwhile.
    fn phase(
        &self,
        name: &str,
        act: impl FnOnce() -> Result<(), Complaint>,
    ) -> Result<Phase, Complaint> {
        let words = |error: lastmeter_linux::Error| error.to_string();
        let (requests, bytes) = self.asked()?;
        let counters = Counters::now(&[]).map_err(words)?;
        let disk = || self.process.map_or(0.0, ran);
        let (before, began) = (disk(), Instant::now());
        act()?;
        let seconds = began.elapsed().as_secs_f64();
        let disk = disk() - before;
        let change = Counters::now(&[]).map_err(words)?.since(&counters);
        let busy =
            change.cpus.iter().map(|cpu| cpu.user + cpu.system + cpu.interrupt + cpu.softirq);
        let machine = busy.sum();
        let after = self.asked()?;
        let (requests, bytes) = (after.0 - requests, after.1 - bytes);
        Ok(Phase { name: name.to_owned(), seconds, machine, disk, requests, bytes })
    }
    /// Requests of one length and direction, one at a time, at places far apart.
    fn single(&self, image: &Path, write: bool, length: usize) -> Result<Single, Complaint> {
        let file = File::options().read(true).write(true).open(image)?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        fadvise(&file, 0, None, Advice::Random)?;
        let (size, mut bytes, mut done) = (file.metadata()?.len(), vec![0x5a; length], 0u64);
        const APART: u64 = 1 << 20;
        let took = self.phase("single", || {
            let began = Instant::now();
            while began.elapsed().as_secs_f64() < self.single {
                let place = (done * APART) % size + (done * APART / size * length as u64) % APART;
                match write {
                    true => file.write_all_at(&bytes, place)?,
                    false => file.read_exact_at(&mut bytes, place)?,
                }
                done += 1;
            }
            Ok(())
        })?;
        let (asked, each) = (took.requests as f64, done.max(1) as f64);
        if !(0.9..=1.1).contains(&(asked / each)) {
            let what = if write { "writes" } else { "reads" };
            return Err(Complaint(format!("{done} {what} became {asked} requests of the disk")));
        }
        let [latency, machine, disk] =
            [took.seconds, took.machine, took.disk].map(|all| all / each);
        Ok(Single { write, length, latency, machine, disk })
    }
    fn work(&self) -> Result<Said, Complaint> {
        let folder = tempfolder(&self.folder, "files")?;
        let mount = tempfolder(&folder, "mount")?;
        let (image, _fuse) = match &self.local {
            Some(image) => (image.clone(), None),
            None => {
                let fuse = Fuse::new(tempfolder(&folder, "fuse")?, &self.folder)?;
                (fuse.1.clone(), Some(fuse))
            }
        };
        let mut singles = Vec::new();
        if self.single > 0.0 {
            for write in [true, false] {
                for length in LENGTHS {
                    singles.push(self.single(&image, write, length)?);
                }
            }
        }
        program("mke2fs", &["-q", "-F", "-t", "ext4"], &[&image])?;
        // All have their number and then the same.
        let mut data: Vec<u8> = (0..FILE_LEN).map(|at| (at * 7 + at / 251) as u8).collect();
        let path = |number: u32| mount.join(number.to_string());
        let all = 0..self.files;
        let mounted = Mounted::new(&image, &mount)?;
        let sync = || -> Result<(), Complaint> { Ok(syncfs(File::open(&mount)?)?) };
        sync()?;
        let made = self.phase(PHASES[0], || {
            for number in all.clone() {
                data[..4].copy_from_slice(&number.to_be_bytes());
                std::fs::write(path(number), &data)?;
            }
            sync()
        })?;
        drop(mounted);
        fadvise(&File::open(&image)?, 0, None, Advice::DontNeed)?;
        let mounted = Mounted::new(&image, &mount)?;
        let read = self.phase(PHASES[1], || {
            for number in all.clone() {
                let read = std::fs::read(path(number))?;
                if read.get(..4) != Some(&number.to_be_bytes()) || read[4..] != data[4..] {
                    return Err(Complaint(format!("file {number} is not what was written")));
                }
            }
            Ok(())
        })?;
        let removed = self.phase(PHASES[2], || {
            all.clone().try_for_each(|number| std::fs::remove_file(path(number)))?;
            sync()
        })?;
        drop(mounted);
        program("e2fsck", &["-f", "-n"], &[&image])?;
        Ok(Said { phases: vec![made, read, removed], singles })
    }
}

fn tempfolder(within: &Path, name: &str) -> Result<PathBuf, Complaint> {
    let path = within.join(name);
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

/// Runs a program, which must succeed.
fn program(name: &str, arguments: &[&str], paths: &[&Path]) -> Result<(), Complaint> {
    // Not every user's path has the folders of root's programs.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(name);
    let output =
        command.args(arguments).args(paths).env("PATH", path).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(Complaint(format!("{name}: {}", why.trim())))
        }
    }
}

/// A file system that is mounted until this is dropped.
struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    fn new<'a>(image: &Path, mount: &'a Path) -> Result<Mounted<'a>, Complaint> {
        program("mount", &["-t", "ext4", "-o", "loop"], &[image, mount])?;
        Ok(Mounted(mount))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = program("umount", &[], &[self.0]);
    }
}

/// nbdfuse with its file.
struct Fuse(Child, PathBuf);

impl Fuse {
    fn new(folder: PathBuf, disk: &Path) -> Result<Fuse, Complaint> {
        let address = format!("nbd+unix:///?socket={}", disk.join("disk.sock").display());
        let mut command = Command::new("nbdfuse");
        let child = command.arg(&folder).arg(address).stdin(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("nbdfuse: {error}"))?;
        let mut fuse = Fuse(child, folder.join(FUSE_FILE));
        let began = Instant::now();
        while !fuse.1.exists() {
            if fuse.0.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                return Err(Complaint("nbdfuse did not begin".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(fuse)
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does the work, and says what it took.
pub(crate) fn run(work: &Work) -> Result<Report, Complaint> {
    let said = work.work()?;
    let text = serde_json::to_string(&said).map_err(|error| error.to_string())?;
    Ok(Report { text, json: Vec::new(), good: true })
}
