//! Who a viewer is: the handshake of RFB 3.3, 3.7 and 3.8, with VeNCrypt where the owner has a certificate.
//!
//! | security type | where | who |
//! |---|---|---|
//! | none | everywhere, if there is `[clients.anyone]` | anyone |
//! | VNC | on loopback, or inside of TLS | the first 8 characters of a token |
//! | VeNCrypt | with a certificate | none, VNC or a whole token as the password (X509Plain), inside of TLS |
//!
//! Inside of TLS a viewer's own certificate says who it is: then it needs nothing else, and must not say otherwise.

use super::gate::Display;
use super::transport::Link;
use crate::access::ANYONE;
use crate::link::unpredictable;
use des::cipher::{BlockEncrypt, KeyInit};
use lastmeter_wire::rfb::{VERSION, security};
use std::time::{Duration, Instant};

/// Time that a viewer has to authenticate.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// The longest name and password of X509Plain.
const PLAIN_MAX: u32 = 1024;

/// Authenticates the viewer: the name of its client.
pub(super) fn welcome(display: &Display, link: &mut Link) -> Result<String, String> {
    let until = Instant::now() + PATIENCE;
    link.say(&VERSION)?;
    let version = link.take::<12>(until)?;
    let old = match &version {
        b"RFB 003.003\n" => true,
        b"RFB 003.007\n" | b"RFB 003.008\n" => false,
        _ => return Err("a viewer speaks another version than 3.3, 3.7, 3.8".to_owned()),
    };
    // A browser has shown its certificate by now.
    let certified = link.certified(&display.access, until)?;
    let anyone = display.access.client(ANYONE).is_some();
    let named = display.access.has_tokens();
    let mut types = Vec::new();
    // Once encrypted, there is no need to encrypt again.
    if display.tls.is_some() && !old && !link.is_encrypted() {
        types.push(security::VENCRYPT);
    }
    if anyone || certified.is_some() {
        types.push(security::NONE);
    }
    // VNC's passwords are 8 characters under DES: not secure on the way to another host.
    if named && link.is_private() {
        types.push(security::VNC);
    }
    if types.is_empty() {
        let why = match display.tls.is_some() {
            true => "this display wants VeNCrypt, which version 3.3 does not have",
            false => {
                "this display is for viewers on its own host: it has no certificate for TLS, and \
                 VNC's passwords are not safe on a network"
            }
        };
        let head: &[u8] = if old { &[0; 4] } else { &[0] };
        link.say(&[head, &(why.len() as u32).to_be_bytes(), why.as_bytes()].concat())?;
        return Err("a viewer from elsewhere, and no [clients.anyone]".to_owned());
    }
    let chosen = if old {
        // The server chooses: a password, if there are any.
        let chosen = types[types.len() - 1];
        link.say(&u32::from(chosen).to_be_bytes())?;
        chosen
    } else {
        link.say(&[&[types.len() as u8], types.as_slice()].concat())?;
        link.take::<1>(until)?[0]
    };
    let client = match chosen {
        chosen if !types.contains(&chosen) => None,
        security::VENCRYPT => vencrypt(display, link, until, anyone, named)?,
        security::NONE => Some(certified.unwrap_or_else(|| ANYONE.to_owned())),
        _ => agreeing(password(display, link, until)?, certified),
    };
    // Version 3.8 sends a result even without authentication; older ones only after a password.
    let tells = &version == b"RFB 003.008\n" || chosen != security::NONE;
    let Some(client) = client else {
        let why = match types.contains(&chosen) {
            true => "no such password",
            false => "this display did not offer that way",
        };
        let reason = [&(why.len() as u32).to_be_bytes(), why.as_bytes()].concat();
        link.say(&[&[0, 0, 0, 1][..], if old { &[][..] } else { &reason }].concat())?;
        return Err("a viewer did not know a password".to_owned());
    };
    if tells {
        link.say(&[0; 4])?;
    }
    // The shared flag: the screen is always shared.
    link.take::<1>(until)?;
    Ok(client)
}

/// A challenge, encrypted under the first characters of a token.
fn password(display: &Display, link: &mut Link, until: Instant) -> Result<Option<String>, String> {
    let challenge = unpredictable()?;
    link.say(&challenge)?;
    let response = link.take::<16>(until)?;
    Ok(display.access.matching(|token| answer(token, challenge) == response))
}

/// The client of a token, unless a certificate is somebody else's.
fn agreeing(client: Option<String>, certified: Option<String>) -> Option<String> {
    client.filter(|client| certified.is_none_or(|own| own == *client))
}

/// VeNCrypt 0.2: TLS with the server's certificate, and inside of it one of the others.
fn vencrypt(
    display: &Display,
    link: &mut Link,
    until: Instant,
    anyone: bool,
    named: bool,
) -> Result<Option<String>, String> {
    const OURS: [u8; 2] = [0, 2];
    let Some(config) = &display.tls else { return Ok(None) };
    link.say(&OURS)?;
    if link.take::<2>(until)? != OURS {
        link.say(&[1])?;
        return Err("a viewer speaks another version of VeNCrypt than 0.2".to_owned());
    }
    let with = |offered: bool, number: u32| offered.then_some(number);
    let kinds: Vec<u32> = [
        with(named, security::X509_PLAIN),
        with(named, security::X509_VNC),
        with(anyone || !display.access.certified.is_empty(), security::X509_NONE),
    ]
    .into_iter()
    .flatten()
    .collect();
    let list: Vec<u8> = kinds.iter().flat_map(|kind| kind.to_be_bytes()).collect();
    link.say(&[&[0, kinds.len() as u8], list.as_slice()].concat())?;
    let chosen = u32::from_be_bytes(link.take::<4>(until)?);
    if !kinds.contains(&chosen) {
        link.say(&[0])?;
        return Err("a viewer chose a way of VeNCrypt that was not offered".to_owned());
    }
    link.say(&[1])?;
    link.encrypt(config)?;
    let certified = link.certified(&display.access, until)?;
    match chosen {
        security::X509_NONE => Ok(certified.or_else(|| anyone.then(|| ANYONE.to_owned()))),
        security::X509_VNC => Ok(agreeing(password(display, link, until)?, certified)),
        _ => {
            let head = link.take::<8>(until)?;
            let len = |at: usize| {
                u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let (name, token) = (len(0), len(4));
            if name > PLAIN_MAX || token > PLAIN_MAX {
                return Err("a viewer has a very long name or password".to_owned());
            }
            let name = link.take_some(name as usize, until)?;
            let token = link.take_some(token as usize, until)?;
            let client = display.access.shown(&String::from_utf8_lossy(&token));
            // The token says who it is; a name must not contradict it.
            let agrees = |client: &&str| name.is_empty() || name == client.as_bytes();
            Ok(agreeing(client.filter(agrees).map(str::to_owned), certified))
        }
    }
}

/// The expected response of a viewer: the key is the password's first 8 bytes, each with its bits reversed.
pub(super) fn answer(password: &str, challenge: [u8; 16]) -> [u8; 16] {
    let mut key = [0; 8];
    for (to, from) in key.iter_mut().zip(password.bytes()) {
        *to = from.reverse_bits();
    }
    let cipher = des::Des::new(&key.into());
    let mut answer = challenge;
    for block in answer.chunks_exact_mut(8) {
        cipher.encrypt_block(des::cipher::generic_array::GenericArray::from_mut_slice(block));
    }
    answer
}
