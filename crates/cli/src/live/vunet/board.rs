//! An appliance of the live VuNet: the Vidboard's machine on a wall clock.

use super::film::Film;
use super::line::Lateness;
use super::part::{Asked, Client, Clock, Report, Request, answer};
use super::plan::BoardPlan;
use lastmeter_lan::vunet::answer_cell;
use lastmeter_lan::vunet::camera::Camera;
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::control::vidboard::{Code, Command};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Most viewers of a board.
const VIEWERS_MAX: usize = 8;

/// A board: a camera for each viewer, which is told apart by its channel.
pub(super) struct Board {
    plan: BoardPlan,
    /// What it sees, if that is a film: each viewer sees it from the beginning.
    film: Option<PathBuf>,
    client: Client,
    cameras: BTreeMap<u16, Camera>,
    /// Frames of those whose viewer has stopped them.
    frames: u64,
    late: Lateness,
}

impl Board {
    pub(super) fn new(plan: BoardPlan, film: Option<PathBuf>, client: Client) -> Board {
        let (cameras, late) = (BTreeMap::new(), Lateness::default());
        Board { plan, film, client, cameras, frames: 0, late }
    }

    pub(super) fn run(mut self, control: &mut Asked) -> Result<(), String> {
        loop {
            let due = self.cameras.values().filter_map(Camera::due).min();
            let due = due.map(Clock::ns_of);
            let ready = self.client.clock.wait(&[self.client.line.socket()], due, true)?;
            for cell in self.client.take() {
                self.hear(&cell);
            }
            self.act();
            if let Some(Request::Report) = control.request(ready)? {
                let frames = self.cameras.values().map(Camera::frames).sum::<u64>() + self.frames;
                let said = self.client.clock.report(self.client.line.passed);
                answer(&Report { late: self.late.clone(), frames, ..said })?;
            }
        }
    }

    fn hear(&mut self, cell: &VunetCell) {
        let Ok(command) = Command::parse(cell.payload()) else { return };
        if command.code == Code::Stop {
            let gone = self.cameras.remove(&command.reply_vci);
            self.frames += gone.map_or(0, |camera| camera.frames());
            return;
        }
        let known = self.cameras.contains_key(&command.reply_vci);
        if !known && self.cameras.len() >= VIEWERS_MAX {
            return;
        }
        let (plan, film) = (&self.plan, &self.film);
        let camera = self.cameras.entry(command.reply_vci).or_insert_with(|| match film {
            Some(film) => plan.camera().of(Box::new(Film::new(film))),
            None => plan.camera(),
        });
        if let Some(status) = camera.command(self.client.clock.time(), command) {
            let Command { reply_vci, reply_port, .. } = status;
            self.client.line.push(answer_cell(reply_vci, reply_port, &status.emit()));
        }
    }

    /// Sends the bursts that are due.
    fn act(&mut self) {
        for camera in self.cameras.values_mut() {
            // A burst that was late is followed by the next at its own time.
            let clock = self.client.clock;
            while let Some(due) = camera.due().filter(|&due| due <= clock.time()) {
                if camera.is_sending() {
                    self.late.add(clock.time().saturating_since(due).as_ps() / 1000);
                }
                let cells = camera.act(clock.time());
                cells.into_iter().for_each(|(cell, _)| self.client.line.push(cell));
                self.client.line.flush();
            }
        }
    }
}
