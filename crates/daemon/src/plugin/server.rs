//! A code server: a folder of signed modules over HTTP. Any static server does as well; for HTTPS, put one in front.
//!
//! It serves `index.toml`, `NAME/VERSION.wasm` and `NAME/VERSION.wasm.minisig`, and nothing else, whatever is asked
//! for.

use super::read;
use crate::{Complaint, Report, print};
use lastmeter_plugin::host::MODULE_LEN_MAX;
use lastmeter_plugin::index::{INDEX_LEN_MAX, Version, is_name, path};
use std::path::PathBuf;
use tiny_http::{Method, Response, Server};

#[derive(clap::Args)]
pub(crate) struct Serve {
    /// What `plugin sign --into` filled
    folder: PathBuf,
    /// Where to listen; port 0 takes any that is free
    #[arg(long, default_value = "127.0.0.1:7070")]
    listen: String,
}

pub(crate) fn serve(arguments: &Serve) -> Result<Report, Complaint> {
    let Serve { folder, listen } = arguments;
    if !folder.is_dir() {
        return Err(Complaint(format!("{} is no folder", folder.display())));
    }
    let server = Server::http(listen).map_err(|error| format!("{listen}: {error}"))?;
    let Some(address) = server.server_addr().to_ip() else {
        return Err(Complaint(format!("{listen} is no address with a port")));
    };
    print(&format!("http://{address}\n"));
    for request in server.incoming_requests() {
        let file = servable(request.url()).filter(|_| *request.method() == Method::Get);
        let found =
            file.and_then(|file| read(&folder.join(file), MODULE_LEN_MAX.max(INDEX_LEN_MAX)).ok());
        // A client that went away has lost no more than its answer.
        let _ = match found {
            Some(bytes) => request.respond(Response::from_data(bytes)),
            None => request.respond(Response::empty(404)),
        };
    }
    Err(Complaint("the server stopped".to_owned()))
}

/// The file that a request names, if it is one of those that are served.
fn servable(url: &str) -> Option<String> {
    let name = url.strip_prefix('/')?;
    if name == "index.toml" {
        return Some(name.to_owned());
    }
    let (plugin, file) = name.split_once('/')?;
    let (file, end) = match file.strip_suffix(".minisig") {
        Some(file) => (file, ".minisig"),
        None => (file, ""),
    };
    let version = Version::parse(file.strip_suffix(".wasm")?)?;
    is_name(plugin).then(|| format!("{}{end}", path(plugin, version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_modules_signatures_and_the_index_are_served() {
        assert_eq!(servable("/index.toml").as_deref(), Some("index.toml"));
        assert_eq!(servable("/dscp/1.2.0.wasm").as_deref(), Some("dscp/1.2.0.wasm"));
        let signature = "dscp/1.2.0.wasm.minisig";
        assert_eq!(servable(&format!("/{signature}")).as_deref(), Some(signature));
        for wrong in [
            "/",
            "/../etc/passwd",
            "/dscp/../x.wasm",
            "//index.toml",
            "/a/1.0.0.key",
            "x",
            "/alice.key",
            "/dscp/1.2.0.wasm?x",
        ] {
            assert_eq!(servable(wrong), None, "{wrong}");
        }
    }
}
