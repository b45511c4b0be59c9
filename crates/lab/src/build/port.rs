//! Port processors: lines on one side, a fabric on the other.

use super::{Builder, Made};
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_engine::{Error, PortId, ResourceKind, StageInfo};
use lastmeter_host::port_processor::fpx::{self, Fpx};
use lastmeter_host::port_processor::{FROM_FABRIC, FROM_LINES, Machine, Names, Options, Port};
use lastmeter_lan::fabric::network;

/// A cell on the line that cells come on.
const CELL: Bytes = Bytes(53);

impl Builder<'_, '_> {
    /// A port processor with the profile that it names.
    pub(super) fn port_processor(&mut self, node: usize) -> Result<Made, Error> {
        let network = self.network;
        let single = &network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let values = &declared.kind.values;
        let profile = self.experiment.ports.get(&values.get::<String>("profile")).cloned();
        let Some(profile) = profile else {
            return Ok(self.misfit(node, "its profile could not be read"));
        };
        let called = |what: &str| format!("{} {what}", declared.name);
        let names =
            ["card to memory", "software", "lookup", "word swap", "memory to card", "queueing"];
        let names = names.map(called);
        let free = names.each_ref().map(|name| self.is_free(name));
        let resource = |what: &str| format!("{} {what}", single.name);
        let resources = ["pci", "memory", "cpu"].map(resource);
        let [pci, memory, _] = resources.each_ref().map(|name| self.speed(name));
        let line: Rate = values.get("line");
        let mut options = (*profile).clone().with_memory_speed(memory);
        options.cycle = options.cycle.scale_ceil(pci.1, pci.0);
        options.cell_gap = line.time_for(CELL);
        options.free = [free[0], free[4]];
        options.software = if free[1] { Duration::ZERO } else { options.software };
        if free[2] || !values.get::<bool>("lookup") {
            options.lookup = Duration::ZERO;
        }
        if free[3] || !values.get::<bool>("word-swap") {
            options.swap = None;
        }
        if free[5] || !values.get::<bool>("queueing") {
            options.clock = None;
        }
        let shared = declared.count.is_some_and(|count| count > 1);
        let engines = values.get::<u64>("fpx") as usize;
        let machine = self.port_machine(options, &names, resources, shared);
        let fpx = (engines > 0).then(|| {
            let name = called("FIPL");
            let free = self.is_free(&name);
            let stage = self.stage(name, None);
            let mut options = fpx::fipl(engines);
            if free {
                (options.cycle, options.period) = (Options::INSTANT, Options::INSTANT);
                (options.handover, options.supply) = (Duration::ZERO, Duration::ZERO);
            }
            Fpx::new(options, fpx::NODES_MOST, stage)
        });
        let element = self.graph.add(single.name.clone(), Port::new(machine).with_fpx(fpx))?;
        for &hop in self.flows.hops.iter().filter(|&&hop| network.hops[hop].to == node) {
            let from = &self.experiment.nodes[network.nodes[network.hops[hop].from].declared];
            let fabric = from.kind.page.name == network::PAGE.name;
            self.ports.insert(hop, (element, if fabric { FROM_FABRIC } else { FROM_LINES }));
        }
        let outputs = self.spread(node, vec![(element, PortId(0))])?;
        Ok(Made { input: Some((element, FROM_LINES)), outputs })
    }

    /// Its resources and stages, named in the books: swapping reads and writes the memory once each.
    fn port_machine(
        &mut self,
        options: Options,
        names: &[String; 6],
        resources: [String; 3],
        shared: bool,
    ) -> Machine {
        let [pci, memory, cpu] = resources;
        let resources = [
            self.port_resource(pci, ResourceKind::Bus),
            self.port_resource(memory, ResourceKind::Bus),
            self.port_resource(cpu, ResourceKind::Cpu),
        ];
        // The bus, the processor, and how often the packet's bytes cross the memory.
        let of = [(0, 1), (2, 0), (2, 0), (2, 2), (0, 1), (2, 0)];
        let mut stages = [lastmeter_base::StageId(0); 6];
        for ((stage, name), (resource, memory)) in stages.iter_mut().zip(names).zip(of) {
            let touches = u32::from(memory == 2);
            let (name, resource) = (name.clone(), (!shared).then_some(resources[resource]));
            let graph = &mut self.graph;
            *stage = *self.stages.entry(name.clone()).or_insert_with(|| {
                graph.stage(StageInfo { touches, memory, ..StageInfo::new(name, resource) })
            });
        }
        Machine::new(options, Names::of(resources, stages))
    }
}
