//! `lastmeterd audio`: a speaker and a microphone on the network, what they play and hear, and what it costs.

mod client;

use crate::device::{File, Run, tell, until_ended, value};
use crate::sandbox::Ticking;
use crate::{Complaint, Report};
use lastmeter_audio::server::{Config, Server};
use lastmeter_plugin::host::{Host, Limits};
use serde_json::json;
use std::sync::Arc;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Serve a speaker and a microphone as the device's file says, until interrupted; the ledger is printed at the end
    Run(Run),
    /// Say whether a device's file is right, and if not, what is wrong
    Check(File),
    /// The ledger of a running device's speaker or microphone, its clients' packets, or its description
    Show(Show),
    /// Send a WAV file to the speaker: play 127.0.0.1:8560 sound.wav
    Play(client::Play),
    /// Hear the microphone: record 127.0.0.1:8560 --seconds 5 --out sound.wav
    Record(client::Record),
}

#[derive(clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    file: File,
    /// Of packets to the speaker, until they are played, or from the microphone, until they are sent; or counters of
    /// each client; or the description of the microphone for other programs (SDP)
    #[arg(default_value = "speaker", value_parser = ["speaker", "microphone", "clients", "sdp"])]
    which: String,
}

pub(crate) fn run(command: Command) -> Result<Report, Complaint> {
    match command {
        Command::Run(arguments) => serve(&arguments),
        Command::Check(file) => check(&file),
        Command::Show(Show { file, which }) => match which.as_str() {
            "clients" => {
                let value = file.ask(&which)?;
                let text = format!("{}\n", serde_json::to_string_pretty(&value)?);
                Ok(Report { text, json: vec![value], good: true })
            }
            "sdp" => {
                let value = file.ask(&which)?;
                let text = value["sdp"].as_str().unwrap_or_default().replace("\r\n", "\n");
                Ok(Report { text, json: vec![value], good: true })
            }
            ledger => file.show(ledger),
        },
        Command::Play(arguments) => client::play(&arguments),
        Command::Record(arguments) => client::record(&arguments),
    }
}

fn read(file: &File) -> Result<Config, Complaint> {
    Config::parse(&file.text()?).map_err(|error| file.place(error))
}

fn check(file: &File) -> Result<Report, Complaint> {
    let host = Arc::new(Host::new(Limits::default())?);
    let audio = read(file)?.audio(file.folder(), host).map_err(|error| file.place(error))?;
    Ok(file.good(audio.access.names()))
}

fn serve(arguments: &Run) -> Result<Report, Complaint> {
    let file = &arguments.file;
    let config = read(file)?;
    let sandbox = Ticking::new(Limits::default())?;
    let host = sandbox.host.clone();
    let audio = config.audio(file.folder(), host).map_err(|error| file.place(error))?;
    let ended = crate::signals()?;
    let server = Server::start(&config, file.folder(), audio, tell).map_err(|e| file.place(e))?;
    let address = server.address;
    let sound = server.audio.sound();
    let format = format!("L16/{}/{}", sound.rate, sound.channels);
    crate::print(&format!("serving {format} at rtsp://{address}/\n"))?;
    let title = format!("audio {}", file.file.display());
    let (own, titled) = (server.audio.clone(), title.clone());
    let cpu = || crate::sandbox::cpu().as_secs_f64();
    let version = env!("CARGO_PKG_VERSION");
    let ledger = move || own.ledger(&titled, version, cpu());
    let (asked, audio) = (ledger.clone(), server.audio);
    let answer = move |what: &str| match what {
        "speaker" => value(&asked()),
        "microphone" => value(&audio.microphone(&title, version, cpu())),
        "clients" => Ok(audio.streams()),
        "sdp" => Ok(json!({ "sdp": audio.describe(&format!("rtsp://{address}/track")) })),
        _ => Err("show speaker, microphone, clients or sdp".to_owned()),
    };
    until_ended(arguments, &ended, answer, || Ok(ledger()))
}
