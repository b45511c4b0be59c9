//! An appliance of the live VuNet: the Vidboard's machine on a wall clock.

use super::line::Lateness;
use super::part::{Asked, Client, Clock, Report, Request, answer};
use super::plan::BoardPlan;
use lastmeter_lan::vunet::answer_cell;
use lastmeter_lan::vunet::camera::Camera;
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::control::vidboard::Command;
use std::collections::BTreeMap;

/// Most viewers of a board.
const VIEWERS_MAX: usize = 8;

/// A board: a camera for each viewer, which is told apart by its channel.
pub(super) struct Board {
    plan: BoardPlan,
    client: Client,
    cameras: BTreeMap<u16, Camera>,
    late: Lateness,
}

impl Board {
    pub(super) fn new(plan: BoardPlan, client: Client) -> Board {
        Board { plan, client, cameras: BTreeMap::new(), late: Lateness::default() }
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
                let frames = self.cameras.values().map(Camera::frames).sum();
                let said = self.client.clock.report(self.client.line.passed);
                answer(&Report { late: self.late.clone(), frames, ..said })?;
            }
        }
    }

    fn hear(&mut self, cell: &VunetCell) {
        let Ok(command) = Command::parse(cell.payload()) else { return };
        let known = self.cameras.contains_key(&command.reply_vci);
        if !known && self.cameras.len() >= VIEWERS_MAX {
            return;
        }
        let plan = &self.plan;
        let camera = self.cameras.entry(command.reply_vci).or_insert_with(|| plan.camera());
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
