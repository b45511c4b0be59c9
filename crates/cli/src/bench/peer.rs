//! Peers: other programs that do the same, built and run here where they are installed.

use std::path::PathBuf;
use std::process::Command;

/// The chain in ns-3; see the file itself.
const NS3_CHAIN: &str = include_str!("../../peers/ns3_chain.cc");
const NS3_LIBRARIES: [&str; 9] = [
    "core",
    "network",
    "internet",
    "point-to-point",
    "applications",
    "nix-vector-routing",
    "traffic-control",
    "bridge",
    "stats",
];

/// The dumbbell in ns-3; see the file itself.
const NS3_DUMBBELL: &str = include_str!("../../peers/ns3_dumbbell.cc");

/// What a peer achieved.
pub(crate) enum Found {
    /// Units a second of processor time.
    Rate(f64),
    /// It could not be asked, and why.
    Missing(String),
}

/// Packet-hops per processor second of the chain of ten routers in ns-3.
pub(crate) fn ns3_chain(seconds: f64) -> Found {
    rate("ns3_chain", NS3_CHAIN, seconds)
}

/// Packet-hops per processor second of a hundred TCP connections through one bottleneck in ns-3.
pub(crate) fn ns3_dumbbell(seconds: f64) -> Found {
    rate("ns3_dumbbell", NS3_DUMBBELL, seconds)
}

fn rate(name: &str, text: &str, seconds: f64) -> Found {
    match run(name, text, seconds) {
        Ok(rate) => Found::Rate(rate),
        Err(why) => Found::Missing(why),
    }
}

fn run(name: &str, text: &str, seconds: f64) -> Result<f64, String> {
    let folder = folder()?;
    let (source, program) = (folder.join(format!("{name}.cc")), folder.join(name));
    let built = std::fs::read_to_string(&source).is_ok_and(|built| built == text);
    if !(built && program.is_file()) {
        std::fs::write(&source, text).map_err(|error| error.to_string())?;
        let mut compiler = Command::new("g++");
        compiler.args(["-O3", "-std=c++17", "-o"]).arg(&program).arg(&source);
        compiler.args(NS3_LIBRARIES.map(|library| format!("-lns3-{library}")));
        let output = compiler.output().map_err(|_| "g++ is not installed".to_owned())?;
        if !output.status.success() {
            let _ = std::fs::remove_file(&source);
            return Err("libns3-dev is not installed".to_owned());
        }
    }
    let output = Command::new(&program).arg(format!("--seconds={seconds}")).output();
    let output = output.map_err(|error| error.to_string())?;
    let answer: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let number = |key: &str| answer[key].as_f64().ok_or(format!("no `{key}` in its answer"));
    Ok(number("packet_hops")? / number("cpu_seconds")?)
}

/// Where built peers are kept.
fn folder() -> Result<PathBuf, String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder = cache.or_else(home).unwrap_or_else(std::env::temp_dir).join("lastmeter/peers");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    Ok(folder)
}
