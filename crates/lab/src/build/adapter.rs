//! Adapters that send, from their descriptions.

use super::fabric::FREE;
use super::{Builder, Made};
use lastmeter_base::kind::{Nested, Values};
use lastmeter_base::{Bytes, Stream};
use lastmeter_engine::{Error, PortId, ResourceKind};
use lastmeter_host::adapter::description::Description;
use lastmeter_host::adapter::element::Adapter;
use lastmeter_host::adapter::engines::Place;
use lastmeter_host::adapter::transmitter::Variation;
use lastmeter_net::queue;

impl Builder<'_, '_> {
    /// An adapter that sends.
    pub(super) fn adapter(&mut self, node: usize) -> Result<Made, Error> {
        let single = &self.network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let values = &declared.kind.values;
        let described = self.experiment.devices.get(&values.get::<String>("device"));
        // What is wrong with its description has been reported.
        let Some(described) = described else {
            return Ok(Made { input: None, outputs: Vec::new() });
        };
        let card = as_written(described, values);
        let variation = match values.get::<String>("host").as_str() {
            "exponential" => Variation::Exponential,
            _ => Variation::None,
        };
        let (name, group) = (single.name.clone(), declared.name.clone());
        let shared = declared.count.is_some_and(|count| count > 1);
        let queue =
            queue::build(&values.get::<Nested>("queue"), &self.site(&name, None, Bytes::ZERO));
        let names = ["interface", "transfer", "set-up", "network"];
        let engine_names = ["interface", "transfer", "network"].map(|of| format!("{name}.{of}"));
        let engine_of = |phase: usize| phase.min(2);
        let speeds =
            [0, 1, 2, 3].map(|phase| match self.is_free(&format!("{group} {}", names[phase])) {
                true => FREE,
                false => self.speed(&engine_names[engine_of(phase)]),
            });
        let engines = engine_names.map(|name| self.port_resource(name, ResourceKind::Engine));
        let stages = [0, 1, 2, 3].map(|phase| {
            let engine = (!shared).then_some(engines[engine_of(phase)]);
            self.stage(format!("{group} {}", names[phase]), engine)
        });
        let stream = Stream::new(self.experiment.seed, &format!("{name}/host"));
        let place = Place { engines, stages, speeds };
        let element = Adapter::new(card, variation, stream, queue, place);
        let element = self.graph.add(name, element)?;
        let outputs = self.spread(node, vec![(element, PortId(0))])?;
        Ok(Made { input: Some((element, PortId(0))), outputs })
    }
}

/// The description with what the experiment writes over it.
fn as_written(described: &Description, values: &Values) -> Description {
    let mut card = described.with_faster_processors(values.get("processors"));
    if values.get("simple-interface") {
        card = card.with_simple_interface();
    }
    if let Some(depth) = values.given("depth") {
        card.queueing.depth = depth;
    }
    if let Some(banks) = values.given("banks") {
        card.buffers.banks = banks;
    }
    card
}

#[cfg(test)]
mod tests {
    use crate::build::{Changes, build};
    use crate::document::Override;
    use crate::experiment::Experiment;
    use crate::library::Builtin;
    use lastmeter_engine::{Outcome, Serial};

    /// The example of the page with something set over it; the engine proves the books.
    fn run(sets: &[&str]) -> Outcome {
        let text = lastmeter_host::adapter::element::PAGE.example;
        let sets: Vec<Override> = sets.iter().filter_map(|set| Override::parse(set).ok()).collect();
        let shown = |problems: Vec<crate::document::Problem>| {
            problems.iter().map(|problem| problem.render(false)).collect::<String>()
        };
        let experiment = Experiment::parse("x.toml", text, &sets, &Builtin);
        let experiment = experiment.unwrap_or_else(|problems| panic!("{}", shown(problems)));
        let built = build(&experiment, &Changes::NONE, &Builtin);
        let built = built.unwrap_or_else(|problems| panic!("{}", shown(problems)));
        let end = built.end;
        let mut engine = built.graph.build(1).unwrap_or_else(|error| panic!("{error}"));
        let ran = engine.run_parallel(end, &Default::default(), &Serial);
        ran.unwrap_or_else(|error| panic!("{error}"));
        engine.finish().unwrap_or_else(|error| panic!("{error}"))
    }

    fn count(outcome: &Outcome, counter: &str) -> u64 {
        let card = outcome.elements.iter().find(|report| report.name == "card");
        let counters = card.map_or(&[][..], |report| &report.counters);
        counters.iter().find(|(name, _)| *name == counter).map_or(0, |&(_, count)| count)
    }

    #[test]
    fn e_65_a_saturated_cim_sends_a_message_each_2808_microseconds() {
        // Eq 5.5 at 4 KB, in 200 ms less the first message's own way.
        let sent = count(&run(&[]), "sent");
        assert!((69..=71).contains(&sent), "{sent}");
        let fast = count(&run(&["nodes.card.adapter.banks=2"]), "sent");
        assert!((86..=88).contains(&fast), "half of Eq 5.2, 2269 us: {fast}");
    }

    #[test]
    fn e_46_what_has_no_buffer_is_dropped_as_the_description_says() {
        let modern = [
            "duration=20 us",
            "nodes.card.adapter.device=pcie4",
            "nodes.card.adapter.depth=1024",
            "traffic.messages.constant.size=1500 B",
            "traffic.messages.constant.rate=4 Tbit/s",
        ];
        let outcome = run(&modern);
        assert!(count(&outcome, "dropped") > 1000, "{}", count(&outcome, "dropped"));
        // 8 MiB on the CIM.
        let long = [
            "nodes.card.adapter.device=cim",
            "traffic.messages.constant.size=9 MiB",
            "traffic.messages.constant.rate=10 Gbit/s",
        ];
        let outcome = run(&long);
        assert!(count(&outcome, "sent") == 0 && count(&outcome, "dropped") > 10);
    }
}
