//! What a live run of channels has to say: a row for each flow, live beside model, and the certificate.

use crate::emulate::Demand;
use lastmeter_base::Duration;
use lastmeter_ledger::Certificate;
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_rtc::Lags;
use lastmeter_rtc::plan::{Flow, Plan, What};
use lastmeter_rtc::session::Measured;
use lastmeter_rtc::simulation::Outcome;
use serde_json::{Value, json};

/// The version of the JSON document.
const SCHEMA: &str = "lastmeter.channels/1";

/// A live run beside its model.
pub(super) struct Report<'a> {
    plan: &'a Plan,
    measured: &'a Measured,
    modelled: &'a [Outcome],
    certificate: Certificate,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        measured: &'a Measured,
        modelled: &'a [Outcome],
    ) -> Report<'a> {
        Report { plan, measured, modelled, certificate: certificate(plan, measured) }
    }

    /// Whether everything promised was kept, and the run kept up.
    pub(super) fn good(&self) -> bool {
        let kept = (0..self.plan.flows.len()).all(|flow| self.broken(flow) == 0);
        let established = self.measured.flows.iter().all(|flow| flow.sent.established);
        kept && established && self.certificate.kept_up
    }

    /// Messages of an admitted channel that were late, damaged, or, unless its source exceeds its contract, lost.
    fn broken(&self, flow: usize) -> u64 {
        let What::Channel { interval, .. } = self.plan.flows[flow].what else { return 0 };
        let received = &self.measured.flows[flow].received;
        let lost = match self.plan.flows[flow].gap >= interval {
            true => self.lost(flow),
            false => 0,
        };
        received.missed + received.damaged + lost
    }

    /// Messages that were sent, at least in part, and did not arrive.
    fn lost(&self, flow: usize) -> u64 {
        let Outcome { sent, received } = &self.measured.flows[flow];
        (sent.made - sent.refused).saturating_sub(received.messages)
    }

    pub(super) fn text(&self) -> String {
        let place = |flow: &Flow| {
            let ends = [flow.from, flow.to].map(|node| self.plan.nodes[node as usize].as_str());
            ends.join(" -> ")
        };
        let width = |text: fn(&Flow) -> usize| self.plan.flows.iter().map(text).max().unwrap_or(0);
        let names = width(|flow| flow.name.chars().count()).max(4);
        let places = self.plan.flows.iter().map(|flow| place(flow).chars().count()).max();
        let places = places.unwrap_or(0).max(4);
        let above = row(["", "", "", "", "delay in ms, live:", "in the model:", ""]);
        let figures = "median, p99, worst";
        let titles = ["messages", "refused", "lost", "missed", figures, figures, "deadline"];
        let mut text = format!("{:names$}  {:places$}  {above}\n", "", "");
        text += &format!("{:names$}  {:places$}  {}\n", "flow", "way", row(titles));
        for (number, flow) in self.plan.flows.iter().enumerate() {
            text +=
                &format!("{:names$}  {:places$}  {}\n", flow.name, place(flow), self.row(number));
        }
        let damaged: u64 = self.measured.flows.iter().map(|flow| flow.received.damaged).sum();
        if damaged > 0 {
            text += &format!("{damaged} messages are not what was sent\n");
        }
        let programs = self.measured.flows.iter().map(|flow| flow.sent.late);
        text += &format!(
            "programs made messages up to {:.2} ms after their time; delays count from then\n",
            programs.fold(0.0, f64::max) * 1e3
        );
        if self.measured.stopped {
            text += "stopped early: this is what there was until then\n";
        }
        text += &format!("certificate: {}\n", self.certificate.words);
        text
    }

    /// What a flow did, live and in the model.
    fn row(&self, number: usize) -> String {
        let Outcome { sent, received } = &self.measured.flows[number];
        if !sent.established {
            return format!("not admitted: {}", sent.refusal);
        }
        let (missed, deadline) = match self.plan.flows[number].what {
            What::Channel { deadline, .. } => {
                let deadline = Duration::from_ps(deadline).as_secs_f64() * 1e3;
                (received.missed.to_string(), format!("{deadline:.1}"))
            }
            What::Effort { .. } => ("-".to_owned(), "none".to_owned()),
        };
        let (made, refused) = (sent.made.to_string(), sent.refused.to_string());
        let lost = self.lost(number).to_string();
        let live = delays(&self.measured.flows[number]);
        let model = delays(&self.modelled[number]);
        row([&made, &refused, &lost, &missed, &live, &model, &deadline])
    }

    pub(super) fn json(&self) -> Value {
        let flows = self.plan.flows.iter().enumerate().map(|(number, flow)| {
            let Outcome { sent, received } = &self.measured.flows[number];
            let deadline = match flow.what {
                What::Channel { deadline, .. } => Some(Duration::from_ps(deadline).as_secs_f64()),
                What::Effort { .. } => None,
            };
            json!({
                "name": flow.name,
                "from": self.plan.nodes[flow.from as usize],
                "to": self.plan.nodes[flow.to as usize],
                "established": sent.established,
                "refusal": sent.refusal,
                "messages": sent.made,
                "refused": sent.refused,
                "lost": self.lost(number),
                "received": received.messages,
                "missed": received.missed,
                "damaged": received.damaged,
                "deadline": deadline,
                "program_late": sent.late,
                "delay": figures(&self.measured.flows[number]),
                "model": {
                    "messages": self.modelled[number].sent.made,
                    "refused": self.modelled[number].sent.refused,
                    "received": self.modelled[number].received.messages,
                    "missed": self.modelled[number].received.missed,
                    "delay": figures(&self.modelled[number]),
                },
            })
        });
        let hosts = self.plan.nodes.iter().zip(&self.measured.hosts).map(|(name, host)| {
            let [excess, data, broken, unknown, queue] = host.drops;
            json!({
                "name": name,
                "received": host.seen.received,
                "unsent": host.seen.unsent,
                "overruns": host.overruns,
                "cpu": host.cpu,
                "refused": host.seen.refused,
                "dropped": {
                    "excess": excess, "best_effort": data, "broken": broken, "unknown": unknown,
                    "queue": queue,
                },
            })
        });
        json!({
            "schema": SCHEMA,
            "seconds": Duration::from_ps(self.plan.length).as_secs_f64(),
            "stopped": self.measured.stopped,
            "isolation": format!("{:?}", self.measured.isolation),
            "pacing": "own timers",
            "good": self.good(),
            "flows": flows.collect::<Vec<_>>(),
            "hosts": hosts.collect::<Vec<_>>(),
            "certificate": self.certificate,
        })
    }

    /// Delays of each channel as shares of its deadline: live beside model.
    pub(super) fn plots(&self) -> Vec<Plot> {
        let curve = |name: &str, outcomes: &[Outcome], pick: fn(&Outcome) -> f64| {
            let point = |(number, flow): (usize, &Flow)| {
                let What::Channel { deadline, .. } = flow.what else { return None };
                let deadline = Duration::from_ps(deadline).as_secs_f64();
                Some((number as f64 + 1.0, pick(&outcomes[number]) / deadline))
            };
            let points = self.plan.flows.iter().enumerate().filter_map(point).collect();
            Series { name: name.to_owned(), points }
        };
        let live = &self.measured.flows;
        let series = vec![
            curve("median, live", live, |outcome| outcome.received.median),
            curve("median, model", self.modelled, |outcome| outcome.received.median),
            curve("worst, live", live, |outcome| outcome.received.worst),
            curve("worst, model", self.modelled, |outcome| outcome.received.worst),
        ];
        let caption = "Delay from logical arrival to the program, as a share of the deadline.";
        let axes = ("channel, in the order of the file", "share of the deadline");
        let mut plot = Plot::new("Delays of channels", caption, axes, series);
        let channels = self.plan.flows.iter().enumerate();
        let channels = channels.filter(|(_, flow)| matches!(flow.what, What::Channel { .. }));
        plot.marks =
            channels.map(|(number, flow)| (number as f64 + 1.0, flow.name.clone())).collect();
        vec![plot]
    }
}

/// A row of the table, after name and way.
fn row([messages, refused, lost, missed, live, model, deadline]: [&str; 7]) -> String {
    let counts = format!("{messages:>8} {refused:>7} {lost:>7} {missed:>6}");
    format!("{counts}  {live:>23}  {model:>23}  {deadline:>8}")
}

fn delays(outcome: &Outcome) -> String {
    let received = &outcome.received;
    if received.messages == 0 {
        return "nothing came".to_owned();
    }
    let ms = [received.median, received.p99, received.worst];
    ms.map(|seconds| format!("{:.2}", seconds * 1e3)).join(", ")
}

fn figures(outcome: &Outcome) -> Value {
    let received = &outcome.received;
    json!({ "median": received.median, "p99": received.p99, "worst": received.worst })
}

/// How well the clocks of all hosts kept.
fn certificate(plan: &Plan, measured: &Measured) -> Certificate {
    let demand = Demand::SLEEPING;
    let lags = measured.hosts.iter().map(|host| host.seen.lags);
    let Lags { departures, within, worst } = lags.fold(Lags::default(), Lags::and);
    let lost = measured.hosts.iter().map(|host| host.seen.unsent + host.overruns);
    let overruns: u64 = lost.sum();
    let share = |count: u64| count as f64 / departures.max(1) as f64;
    let [within_10us, within_20us, within_100us, within_1ms] = within.map(share);
    let worst = worst as f64 / 1e9;
    let cpu: f64 = measured.hosts.iter().map(|host| host.cpu).sum();
    let cpu = cpu / Duration::from_ps(plan.length).as_secs_f64();
    let kept_up = within_1ms >= demand.share && overruns == 0;
    let verdict = match kept_up {
        true => "the hosts kept up",
        false => "the hosts did not keep up: the machine is too busy for these links",
    };
    let words = format!(
        "{verdict}: {:.4} % of {departures} departures at most {} late ({:.1} % at most 100 us), \
         worst {:.3} ms, {overruns} lost for want of room; paced by own timers, with {:.2} CPUs",
        within_1ms * 100.0,
        demand.tolerance,
        within_100us * 100.0,
        worst * 1e3,
        cpu,
    );
    Certificate {
        kept_up,
        within_10us,
        within_20us,
        within_100us,
        within_1ms,
        worst_lag: worst,
        overruns,
        departures,
        required: demand.share,
        tolerance: demand.tolerance.as_secs_f64(),
        shortfall: overruns as f64 / departures.max(1) as f64,
        cpu,
        stages: Default::default(),
        lags: Vec::new(),
        words,
    }
}
