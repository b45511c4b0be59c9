//! Peers: other programs that do the same, built and run here where their libraries are installed.

use super::crates::Common;
use lastmeter_net::classify::{self, Header, Rule};
use lastmeter_net::lookup::{NextHop, Prefix};
use std::path::PathBuf;
use std::process::Command;

/// The chain in ns-3; see the file itself.
const NS3_CHAIN: &str = include_str!("../../peers/ns3_chain.cc");
const NS3_LIBRARIES: &str = "core network internet point-to-point applications nix-vector-routing \
                             traffic-control bridge stats";

/// The dumbbell in ns-3; see the file itself.
const NS3_DUMBBELL: &str = include_str!("../../peers/ns3_dumbbell.cc");

/// Any network in ns-3, and what is mended of ns-3; see the files themselves.
const NS3_PATH: &str = include_str!("../../peers/ns3_path.cc");
const NS3_MENDED: &str = include_str!("../../peers/ns3_mended.h");

/// Packet-hops per CPU second of the chain of ten routers in ns-3.
pub(crate) fn ns3_chain(seconds: f64) -> Result<f64, String> {
    run("ns3_chain", NS3_CHAIN, seconds)
}

/// Packet-hops per CPU second of a hundred TCP connections through one bottleneck in ns-3.
pub(crate) fn ns3_dumbbell(seconds: f64) -> Result<f64, String> {
    run("ns3_dumbbell", NS3_DUMBBELL, seconds)
}

fn run(name: &str, text: &str, seconds: f64) -> Result<f64, String> {
    let output = Command::new(ns3(name, text)?).arg(format!("--seconds={seconds}")).output();
    let output = output.map_err(|error| error.to_string())?;
    let answer: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let number = |key: &str| answer[key].as_f64().ok_or(format!("no `{key}` in its answer"));
    Ok(number("packet_hops")? / number("cpu_seconds")?)
}

/// A program of ns-3, built if it is not yet.
fn ns3(name: &str, text: &str) -> Result<PathBuf, String> {
    // As one file, so that a change of either builds it again.
    let text = text.replace("#include \"ns3_mended.h\"", NS3_MENDED);
    built(&format!("{name}.cc"), &text, "libns3-dev", |compiler| {
        compiler.arg("-std=c++17");
        Ok(NS3_LIBRARIES.split(' ').map(|library| format!("-lns3-{library}")).collect())
    })
}

/// The program that runs a network of an experiment in ns-3, built where it is not yet.
pub(crate) fn ns3_path() -> Result<PathBuf, String> {
    ns3("ns3_path", NS3_PATH)
}

/// Longest-prefix match in DPDK; see the file itself.
const LOOKUP_DPDK: &str = include_str!("../../peers/lookup_dpdk.c");

/// The result of one of DPDK's structures for longest-prefix match.
pub(crate) struct Dpdk {
    /// Lookups per CPU second.
    pub(crate) lookups: f64,
    /// Deletes and adds per CPU second; 0 where they are not measured.
    pub(crate) updates: f64,
    /// Bytes of the table.
    pub(crate) bytes: f64,
    /// The sum of the next hops of one pass.
    pub(crate) sum: u64,
    /// Seconds that loading took.
    pub(crate) loaded: f64,
}

/// A structure's result on the same table and addresses, or why there is none.
pub(crate) fn dpdk_lookup<K: Common>(
    structure: &str,
    table: &[(Prefix<K>, NextHop)],
    keys: &[K],
    seconds: f64,
) -> Result<Dpdk, String> {
    let line = |&(prefix, hop): &(Prefix<K>, NextHop)| {
        format!("{}/{} {hop}\n", prefix.key().address(), prefix.len())
    };
    let text: String = table.iter().map(line).collect();
    let keys: Vec<u8> = keys.iter().flat_map(|key| key.dpdk()).collect();
    let program = ("lookup_dpdk", LOOKUP_DPDK);
    let answer = dpdk(program, &[structure], text.as_bytes(), &keys, seconds)?;
    if let Some(why) = answer["missing"].as_str() {
        return Err(why.to_owned());
    }
    let number = |key: &str| answer[key].as_f64().ok_or(format!("no `{key}` in its answer"));
    Ok(Dpdk {
        lookups: number("lookups")?,
        updates: number("updates")?,
        bytes: number("bytes")?,
        sum: answer["sum"].as_u64().ok_or("no `sum` in its answer")?,
        loaded: number("loaded")?,
    })
}

/// Classification in DPDK; see the file itself.
const CLASSIFY_DPDK: &str = include_str!("../../peers/classify_dpdk.c");

/// The result of DPDK's `rte_acl`.
pub(crate) struct Acl {
    /// Headers per CPU second.
    pub(crate) lookups: f64,
    /// Build time in seconds; any change requires a rebuild.
    pub(crate) build: f64,
    /// The sum over one pass of 1 + the rule's index.
    pub(crate) sum: u64,
}

/// `rte_acl`'s result on the same rules and headers, or why there is none.
pub(crate) fn dpdk_classify(
    rules: &[Rule],
    headers: &[Header],
    seconds: f64,
) -> Result<Acl, String> {
    let text = classify::text::emit(rules.iter().map(|rule| &rule.filter));
    let mut bytes = Vec::with_capacity(headers.len() * 16);
    for header in headers {
        bytes.extend(header.src.to_be_bytes());
        bytes.extend(header.dst.to_be_bytes());
        bytes.extend(header.src_port.to_be_bytes());
        bytes.extend(header.dst_port.to_be_bytes());
        bytes.extend([header.protocol, 0, 0, 0]);
    }
    let program = ("classify_dpdk", CLASSIFY_DPDK);
    let answer = dpdk(program, &[], text.as_bytes(), &bytes, seconds)?;
    let number = |key: &str| answer[key].as_f64().ok_or(format!("no `{key}` in its answer"));
    Ok(Acl {
        lookups: number("lookups")?,
        build: number("build")?,
        sum: answer["sum"].as_u64().ok_or("no `sum` in its answer")?,
    })
}

/// Builds the program if needed, runs it with its arguments on a table and a file of keys, and returns the
/// line of JSON that it prints.
fn dpdk(
    (name, source): (&str, &str),
    arguments: &[&str],
    table: &[u8],
    keys: &[u8],
    seconds: f64,
) -> Result<serde_json::Value, String> {
    let program = built(&format!("{name}.c"), source, "libdpdk-dev", |compiler| {
        compiler.arg("-march=native");
        let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output();
        let flags = flags.map_err(|_| "pkg-config is not installed".to_owned())?;
        let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
        Ok(flags.split_whitespace().map(str::to_owned).collect())
    })?;
    let folder = folder()?;
    let (table_file, keys_file) = (folder.join("table.txt"), folder.join("keys.bin"));
    std::fs::write(&table_file, table).map_err(|error| error.to_string())?;
    std::fs::write(&keys_file, keys).map_err(|error| error.to_string())?;
    let mut command = Command::new(&program);
    // Without huge pages it uses private memory; nothing is shared with other programs.
    command.args(["--no-huge", "-m", "2048", "--no-shconf", "--no-telemetry", "--no-pci"]);
    command.args(["-l", "0", "--log-level=1", "--force-max-simd-bitwidth=512", "--"]);
    let output =
        command.args(arguments).arg(&table_file).arg(&keys_file).arg(seconds.to_string()).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    // DPDK may print something before it.
    let line = text.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line).map_err(|_| format!("it exited with {}", output.status))
}

/// Builds a peer unless it has been built from the same source. `options` adds to the compiler's options
/// and returns those of the libraries, which are in `package`.
fn built(
    file: &str,
    text: &str,
    package: &str,
    options: impl FnOnce(&mut Command) -> Result<Vec<String>, String>,
) -> Result<PathBuf, String> {
    let source = folder()?.join(file);
    let program = source.with_extension("");
    let is_built = std::fs::read_to_string(&source).is_ok_and(|built| built == text);
    if is_built && program.is_file() {
        return Ok(program);
    }
    std::fs::write(&source, text).map_err(|error| error.to_string())?;
    let compiler = if file.ends_with(".cc") { "g++" } else { "gcc" };
    let mut command = Command::new(compiler);
    let libraries = options(command.arg("-O3"))?;
    command.arg("-o").arg(&program).arg(&source).args(libraries);
    let output = command.output().map_err(|_| format!("{compiler} is not installed"))?;
    if !output.status.success() {
        let _ = std::fs::remove_file(&source);
        return Err(format!("{package} is not installed"));
    }
    Ok(program)
}

/// Where built peers are kept.
fn folder() -> Result<PathBuf, String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder = cache.or_else(home).unwrap_or_else(std::env::temp_dir).join("lastmeter/peers");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    Ok(folder)
}
