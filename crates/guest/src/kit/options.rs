//! A guest and what it does, and QEMU's command line for it.

use super::Kit;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where QEMU's data are; qboot is among them.
const FIRMWARE: &str = "qboot.rom";

/// What the guest's network interface is connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// It has none.
    #[default]
    None,
    /// A vhost-user device that listens at this socket: virtio-net, in another process.
    VhostUser(PathBuf),
    /// QEMU's own virtio-net; its frames, each after its length (4 bytes, big-endian), go over the Unix socket that is
    /// listened at here.
    Stream(PathBuf),
    /// A device of vfio-user that listens at this socket: a PCI device with registers of its own. It needs the kit's
    /// own QEMU ([`Kit::has_vfio`]).
    VfioUser(PathBuf),
}

/// A guest and what it does.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the interface is connected to.
    pub network: Network,
    /// The interface's Ethernet address; QEMU's where none is given.
    pub mac: Option<String>,
    /// The interface's IPv4 address and prefix, `10.0.0.2/24`.
    pub address: Option<String>,
    /// Modules to load, in this order; those of a stock virtio-net where none are given.
    pub modules: Option<Vec<String>>,
    /// Memory in megabytes.
    pub memory: u32,
    /// Processors.
    pub cpus: u32,
    /// A script for busybox's shell. Its exit status is the guest's.
    pub command: String,
    /// Files that it needs, by name without a leading slash.
    pub files: Vec<(String, Vec<u8>)>,
    /// Time between the agent's samples; without, there are two: before and after the command.
    pub interval: Option<Duration>,
    /// The time that the guest has, starting included.
    pub limit: Duration,
    /// Niceness of QEMU's process, below 0 with the rights for it.
    pub nice: Option<i32>,
    /// Further words for the kernel's command line.
    pub kernel: String,
    /// Further arguments of QEMU.
    pub qemu: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            network: Network::None,
            mac: None,
            address: None,
            modules: None,
            memory: 256,
            cpus: 1,
            command: String::new(),
            files: Vec::new(),
            interval: None,
            limit: Duration::from_secs(60),
            nice: None,
            kernel: String::new(),
            qemu: Vec::new(),
        }
    }
}

impl Options {
    /// QEMU's arguments, serial ports and initial file system in `folder`.
    pub(super) fn arguments(&self, kit: &Kit, folder: &Path) -> Vec<String> {
        let at = |name: &str| folder.join(name).display().to_string();
        let memory = format!("{}M", self.memory);
        let kernel = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable random.trust_cpu=on \
             net.ifnames=0 {}",
            self.kernel
        );
        let mut all: Vec<String> = [
            "-machine",
            "q35,usb=off,sata=off,smbus=off,memory-backend=memory",
            "-accel",
            "tcg",
            "-object",
            &format!("memory-backend-memfd,id=memory,size={memory},share=on"),
            "-m",
            &memory,
            "-smp",
            &self.cpus.to_string(),
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            // Its threads have names.
            "-name",
            "lastmeter,debug-threads=on",
            "-display",
            "none",
            "-bios",
            FIRMWARE,
            "-kernel",
            &kit.folder.join("kernel").display().to_string(),
            "-initrd",
            &at("initrd"),
            "-append",
            kernel.trim(),
            "-serial",
            "stdio",
            "-chardev",
            &format!("socket,id=report,path={}", at("report")),
            "-serial",
            "chardev:report",
            "-chardev",
            &format!("socket,id=output,path={}", at("output")),
            "-serial",
            "chardev:output",
        ]
        .map(str::to_owned)
        .into();
        let backend = match &self.network {
            Network::None => None,
            Network::VhostUser(socket) => {
                all.push("-chardev".to_owned());
                all.push(format!("socket,id=device,path={}", socket.display()));
                Some("vhost-user,id=net,chardev=device".to_owned())
            }
            Network::Stream(socket) => {
                let path = socket.display();
                Some(format!("stream,id=net,server=off,addr.type=unix,addr.path={path}"))
            }
            Network::VfioUser(socket) => {
                let path = socket.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
                let socket = format!("{{\"path\":\"{path}\",\"type\":\"unix\"}}");
                all.push("-device".to_owned());
                all.push(format!("{{\"driver\":\"vfio-user-pci\",\"socket\":{socket}}}"));
                None
            }
        };
        if let Some(backend) = backend {
            let mac = self.mac.as_ref().map_or(String::new(), |mac| format!(",mac={mac}"));
            all.extend(["-netdev".to_owned(), backend, "-device".to_owned()]);
            all.push(format!("virtio-net-pci,netdev=net,vectors=0,romfile={mac}"));
        }
        all.extend(self.qemu.iter().cloned());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_is_told_of_the_network() {
        let kit = Kit { folder: PathBuf::from("/kit") };
        let options =
            Options { network: Network::VhostUser("/x/device".into()), ..Options::default() };
        let words = options.arguments(&kit, Path::new("/f")).join(" ");
        assert!(
            words.contains(
                "socket,id=device,path=/x/device -netdev vhost-user,id=net,chardev=device"
            )
        );
        assert!(words.contains("virtio-net-pci,netdev=net,vectors=0,romfile="));
        assert!(!Options::default().arguments(&kit, Path::new("/f")).join(" ").contains("netdev"));
        let options = Options { network: Network::VfioUser("/x/\"d".into()), ..options };
        let words = options.arguments(&kit, Path::new("/f")).join(" ");
        assert!(words.contains(
            r#"-device {"driver":"vfio-user-pci","socket":{"path":"/x/\"d","type":"unix"}}"#
        ));
        assert!(kit.qemu(&options).unwrap_err().to_string().contains("make guest"));
    }
}
