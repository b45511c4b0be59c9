//! Logging in: who the initiator is, and how the session works (RFC 7143, sections 6 and 11.12).
//!
//! ```text
//! initiator                                    target
//! InitiatorName, TargetName, AuthMethod   -->
//!                                         <--  AuthMethod=CHAP
//! CHAP_A                                  -->
//!                                         <--  CHAP_A, CHAP_I, CHAP_C
//! CHAP_N (its name), CHAP_R (, CHAP_I, CHAP_C) -->
//!                                         <--  to the next stage (, CHAP_N, CHAP_R)
//! HeaderDigest, MaxBurstLength, ...       -->
//!                                         <--  what is agreed; to full feature phase
//! ```
//!
//! Whoever is among the device's clients logs in with its name and token. Without authentication it is `anyone`, if the
//! owner lets anyone in.

use super::chap;
use super::parameters::{Parameters, RECEIVE_MAX};
use crate::access::{ANYONE, Access};
use lastmeter_wire::iscsi::{self, Answer, Ask, Request, stage, status, text};

/// PDUs of a login, at most.
pub(super) const STEPS_MAX: usize = 32;

/// What a login is judged by.
pub struct Door<'a> {
    /// Who may do what.
    pub access: &'a Access,
    /// The target's name.
    pub target: &'a str,
    /// The target's own secret, where initiators want to know who it is.
    pub secret: Option<&'a str>,
    /// The address under which the initiator reached it.
    pub portal: &'a str,
    /// Unpredictable bytes.
    pub challenge: [u8; chap::LEN],
    /// The number that a new session gets; not zero.
    pub tsih: u16,
}

/// Who logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device's client.
    pub client: String,
    /// The initiator port: its name and its part of the session's identity.
    pub port: String,
    /// It only wants to know which targets there are.
    pub discovery: bool,
}

/// Where authentication is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing was said yet.
    Method,
    /// CHAP was chosen.
    Algorithm,
    /// The challenge was sent.
    Response,
    /// Done.
    Done,
}

/// A login in progress.
pub(super) struct Login {
    step: Step,
    steps: usize,
    isid: Option<[u8; 6]>,
    initiator: Option<String>,
    discovery: bool,
    client: Option<String>,
    /// Text of a step that is not complete.
    text: Vec<u8>,
    told_group: bool,
    told_length: bool,
}

/// What is answered to a step of a login.
pub(super) struct Stepped {
    /// Transit, continue, stages, status.
    pub(super) answer: Answer,
    /// The text.
    pub(super) text: Vec<u8>,
    /// Set at the end.
    pub(super) done: Option<Identity>,
}

impl Login {
    /// It begins.
    pub(super) fn new() -> Login {
        Login {
            step: Step::Method,
            steps: 0,
            isid: None,
            initiator: None,
            discovery: false,
            client: None,
            text: Vec::new(),
            told_group: false,
            told_length: false,
        }
    }

    /// One request of it. An answer with a status other than zero ends it.
    pub(super) fn receive(
        &mut self,
        request: &Request,
        data: &[u8],
        door: &Door,
        parameters: &mut Parameters,
    ) -> Stepped {
        match self.step(request, data, door, parameters) {
            Ok(stepped) => stepped,
            Err(status) => {
                let (isid, tsih) = match request.ask {
                    Ask::Login { isid, tsih, .. } => (isid, tsih),
                    _ => ([0; 6], 0),
                };
                let answer = answer((false, false), (0, 0), isid, tsih, status);
                Stepped { answer, text: Vec::new(), done: None }
            }
        }
    }

    fn step(
        &mut self,
        request: &Request,
        data: &[u8],
        door: &Door,
        parameters: &mut Parameters,
    ) -> Result<Stepped, u16> {
        let Ask::Login { transit, continues, current, next, version_min, isid, tsih, .. } =
            request.ask
        else {
            return Err(status::INVALID);
        };
        self.steps += 1;
        if self.steps > STEPS_MAX || *self.isid.get_or_insert(isid) != isid {
            return Err(status::INITIATOR);
        }
        if version_min > 0 {
            return Err(status::VERSION);
        }
        if tsih != 0 {
            return Err(status::TOO_MANY_CONNECTIONS);
        }
        if self.text.len() + data.len() > text::TEXT_MAX {
            return Err(status::INITIATOR);
        }
        self.text.extend_from_slice(data);
        if continues {
            if transit {
                return Err(status::INITIATOR);
            }
            let answer = answer((false, false), (current, 0), isid, tsih, status::SUCCESS);
            return Ok(Stepped { answer, text: Vec::new(), done: None });
        }
        let whole = std::mem::take(&mut self.text);
        let pairs = text::parse(&whole).map_err(|_| status::INITIATOR)?;
        let mut said = Vec::new();
        self.name(&pairs, door, &mut said)?;
        let ready = match current {
            stage::SECURITY => self.authenticate(&pairs, door, &mut said)?,
            stage::OPERATIONAL => {
                self.without_authentication(door)?;
                self.operate(&pairs, parameters, &mut said)?;
                true
            }
            _ => return Err(status::INITIATOR),
        };
        if transit && (next <= current || next == 2) {
            return Err(status::INITIATOR);
        }
        let transit = transit && ready;
        if transit && next == stage::FULL {
            self.without_authentication(door)?;
        }
        let done = (transit && next == stage::FULL).then(|| self.identity(isid)).flatten();
        let tsih = if done.is_some() { door.tsih } else { 0 };
        let stages = (current, if transit { next } else { 0 });
        let answer = answer((transit, false), stages, isid, tsih, status::SUCCESS);
        Ok(Stepped { answer, text: said, done })
    }

    /// Names of both, and the type of the session, which the first request has.
    fn name(&mut self, pairs: &[(&str, &str)], door: &Door, said: &mut Vec<u8>) -> Result<(), u16> {
        let value = |key| pairs.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
        if self.initiator.is_some() {
            return Ok(());
        }
        let name = value("InitiatorName").filter(|name| !name.is_empty());
        let name = name.ok_or(status::MISSING)?;
        if name.len() > text::NAME_MAX {
            return Err(status::INITIATOR);
        }
        self.initiator = Some(name.to_owned());
        self.discovery = match value("SessionType").unwrap_or("Normal") {
            "Normal" => false,
            "Discovery" => true,
            _ => return Err(status::SESSION_TYPE),
        };
        if !self.discovery {
            let target = value("TargetName").ok_or(status::MISSING)?;
            if !target.eq_ignore_ascii_case(door.target) {
                return Err(status::NOT_FOUND);
            }
            if !self.told_group {
                text::emit(said, "TargetPortalGroupTag", "1");
                self.told_group = true;
            }
        }
        Ok(())
    }

    /// A step of authentication; whether it is over.
    fn authenticate(
        &mut self,
        pairs: &[(&str, &str)],
        door: &Door,
        said: &mut Vec<u8>,
    ) -> Result<bool, u16> {
        let value = |key| pairs.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
        match self.step {
            Step::Method => {
                let offered = value("AuthMethod").unwrap_or("None");
                let anyone = door.access.client(ANYONE).is_some();
                let named = door.access.names().any(|name| name != ANYONE);
                let can = |method: &&str| match *method {
                    "CHAP" => named,
                    "None" => anyone,
                    _ => false,
                };
                match offered.split(',').find(can) {
                    Some("CHAP") => {
                        text::emit(said, "AuthMethod", "CHAP");
                        self.step = Step::Algorithm;
                        Ok(false)
                    }
                    Some(_) => {
                        if value("AuthMethod").is_some() {
                            text::emit(said, "AuthMethod", "None");
                        }
                        self.step = Step::Done;
                        self.client = Some(ANYONE.to_owned());
                        Ok(true)
                    }
                    None => Err(status::AUTHENTICATION),
                }
            }
            Step::Algorithm => {
                let offered = value("CHAP_A").ok_or(status::MISSING)?;
                if !offered.split(',').any(|algorithm| algorithm == chap::MD5) {
                    return Err(status::AUTHENTICATION);
                }
                text::emit(said, "CHAP_A", chap::MD5);
                text::emit(said, "CHAP_I", &door.challenge[0].to_string());
                text::emit(said, "CHAP_C", &text::hexadecimal(&door.challenge));
                self.step = Step::Response;
                Ok(false)
            }
            Step::Response => {
                let name = value("CHAP_N").ok_or(status::MISSING)?;
                let shown = value("CHAP_R").and_then(text::binary).ok_or(status::MISSING)?;
                let secret = door.access.client(name).and_then(|client| client.token.as_deref());
                // Somebody who is not known takes as long.
                let expected =
                    chap::response(door.challenge[0], secret.unwrap_or(""), &door.challenge);
                if !chap::same(&shown, &expected) || secret.is_none() {
                    return Err(status::AUTHENTICATION);
                }
                if let Some(challenge) = value("CHAP_C") {
                    self.prove(value("CHAP_I"), challenge, door, said)?;
                }
                self.client = Some(name.to_owned());
                self.step = Step::Done;
                Ok(true)
            }
            Step::Done => Ok(true),
        }
    }

    /// The target shows that it has its secret.
    fn prove(
        &self,
        identifier: Option<&str>,
        challenge: &str,
        door: &Door,
        said: &mut Vec<u8>,
    ) -> Result<(), u16> {
        let secret = door.secret.ok_or(status::AUTHENTICATION)?;
        let identifier = identifier.and_then(text::number).and_then(|id| u8::try_from(id).ok());
        let identifier = identifier.ok_or(status::MISSING)?;
        let challenge = text::binary(challenge).ok_or(status::INITIATOR)?;
        // A challenge of ours that comes back would have us tell the answer (RFC 7143, section 12.1.3).
        if challenge == door.challenge {
            return Err(status::AUTHENTICATION);
        }
        let response = chap::response(identifier, secret, &challenge);
        text::emit(said, "CHAP_N", door.target);
        text::emit(said, "CHAP_R", &text::hexadecimal(&response));
        Ok(())
    }

    /// Whoever skips authentication is anyone, if the owner lets anyone in.
    fn without_authentication(&mut self, door: &Door) -> Result<(), u16> {
        if self.client.is_none() {
            if self.step != Step::Method || door.access.client(ANYONE).is_none() {
                return Err(status::AUTHENTICATION);
            }
            self.client = Some(ANYONE.to_owned());
        }
        self.step = Step::Done;
        Ok(())
    }

    fn operate(
        &mut self,
        pairs: &[(&str, &str)],
        parameters: &mut Parameters,
        said: &mut Vec<u8>,
    ) -> Result<(), u16> {
        for (key, value) in pairs {
            match parameters.offer(key, value) {
                Ok(Some(answer)) => text::emit(said, key, &answer),
                Ok(None) => {}
                Err(()) => return Err(status::INITIATOR),
            }
        }
        if !self.told_length {
            text::emit(said, "MaxRecvDataSegmentLength", &RECEIVE_MAX.to_string());
            self.told_length = true;
        }
        Ok(())
    }

    fn identity(&self, isid: [u8; 6]) -> Option<Identity> {
        let name = self.initiator.as_ref()?;
        let port = format!("{name},i,{}", text::hexadecimal(&isid));
        Some(Identity { client: self.client.clone()?, port, discovery: self.discovery })
    }
}

fn answer(
    (transit, continues): (bool, bool),
    (current, next): (u8, u8),
    isid: [u8; 6],
    tsih: u16,
    status: u16,
) -> Answer {
    let (version_max, version_active) = (0, 0);
    Answer::Login {
        transit,
        continues,
        current,
        next,
        version_max,
        version_active,
        isid,
        tsih,
        status,
    }
}

/// The text that tells a target and where it is.
pub(super) fn send_targets(wanted: &str, target: &str, portal: &str) -> Vec<u8> {
    let mut said = Vec::new();
    if matches!(wanted, "" | "All") || wanted.eq_ignore_ascii_case(target) {
        text::emit(&mut said, "TargetName", target);
        text::emit(&mut said, "TargetAddress", &format!("{portal},1"));
    }
    debug_assert!(said.len() < iscsi::DATA_MAX as usize);
    said
}
