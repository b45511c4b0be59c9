//! Routes of FRR and of the kernel, followed as long as the router runs.

use super::routes::to;
use super::{Control, PREFIXES_MAX};
use crate::rib::Source;
use lastmeter_linux::dataplane::routing::{Follow, Watch};
use lastmeter_wire::netlink::{self, Message};
use serde_json::json;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Control {
    /// Serves FRR: one connection after another, each with a full set of routes followed by changes.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn serve_fpm(self: &Arc<Control>) -> Result<(), String> {
        let Some(address) = self.lock().config.fpm else { return Ok(()) };
        let listener =
            TcpListener::bind(address).map_err(|error| format!("fpm: {address}: {error}"))?;
        let control = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                control.audit("fpm", &json!("connected"));
                {
                    let mut state = control.lock();
                    state.rib.begin(Source::Fpm);
                    state.sweep_at = Some(Instant::now() + state.quiet());
                }
                let why = control.hear_fpm(stream);
                control.audit("fpm", &json!(why));
            }
        });
        Ok(())
    }

    /// Reads one connection of FRR to its end; returns why it ended.
    fn hear_fpm(&self, mut stream: TcpStream) -> String {
        let mut buffer = vec![0; 1 << 18];
        let mut filled = 0;
        loop {
            let len = match stream.read(&mut buffer[filled..]) {
                Ok(0) => return "closed".to_owned(),
                Ok(len) => len,
                Err(error) => return error.to_string(),
            };
            filled += len;
            let mut routes = Vec::new();
            let mut at = 0;
            loop {
                match netlink::fpm(&buffer[at..filled]) {
                    Ok(Some((messages, len))) => {
                        let heard = netlink::each(messages, |message| routes.push(message));
                        if let Err(error) = heard {
                            return error.to_string();
                        }
                        at += len;
                    }
                    Ok(None) => break,
                    Err(error) => return error.to_string(),
                }
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
            if let Err(why) = self.hear(Source::Fpm, routes) {
                return why;
            }
        }
    }

    /// Routes of a source, sent to the port processor together.
    fn hear(&self, source: Source, messages: Vec<Message>) -> Result<(), String> {
        let heard = Instant::now();
        let mut state = self.lock();
        let mut commands = Vec::new();
        // FRR does not mark the end of its full set: silence for a while does.
        if source == Source::Fpm && state.sweep_at.is_some() {
            state.sweep_at = Some(Instant::now() + state.quiet());
        }
        for message in messages {
            let Message::Route(there, route) = message else { continue };
            state.fpm_messages += u64::from(source == Source::Fpm);
            const MAIN: u32 = 254;
            if route.table != MAIN && route.table != 0 {
                continue;
            }
            let network = (route.prefix, route.len);
            let to = there.then(|| to(&state, &route)).flatten();
            if to.is_some() && state.rib.len() >= PREFIXES_MAX {
                return Err(format!("more than {PREFIXES_MAX} prefixes"));
            }
            state.rib.set(network, source, to.map(|to| (to, route.metric)), &mut commands);
        }
        state.tell_routes(&commands, heard);
        Ok(())
    }

    /// Follows the kernel's main table, if configured.
    pub fn follow_kernel(self: &Arc<Control>) {
        if !self.lock().config.kernel_routes {
            return;
        }
        let control = self.clone();
        std::thread::spawn(move || {
            while !control.ended() {
                let Ok(mut watch) = Watch::new(Follow { routes: true }) else { return };
                control.lock().rib.begin(Source::Kernel);
                let mut swept = false;
                loop {
                    let mut heard = Vec::new();
                    let whole = watch.poll(|message| {
                        // The kernel's local table is not for forwarding.
                        if let Message::Route(_, route) = &message
                            && route.kind != 2
                            && route.kind != 3
                        {
                            heard.push(message);
                        }
                    });
                    let _ = control.hear(Source::Kernel, heard);
                    if !matches!(whole, Ok(true)) || control.ended() {
                        break;
                    }
                    if watch.is_complete() && !swept {
                        swept = true;
                        let mut state = control.lock();
                        let mut commands = Vec::new();
                        state.rib.sweep(Source::Kernel, &mut commands);
                        state.tell(&commands);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
    }
}
