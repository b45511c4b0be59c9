//! The endpoints of flows: what each kind of traffic adds to the hosts that send and receive it.

use super::host::Paths;
use super::{Builder, Capture, Output};
use crate::document::{Fault, shorten};
use crate::replay;
use lastmeter_base::NodeId;
use lastmeter_base::kind::Family;
use lastmeter_engine::Error;
use lastmeter_engine::site::{Ends, Flow, Receiver, Records, TrafficKind};
use std::collections::BTreeMap;

/// The flows at a host whose endpoints are built together, for one kind of traffic or several.
struct Together<'a> {
    kind: &'static TrafficKind,
    sent: Vec<Flow<'a>>,
    received: Vec<Flow<'a>>,
}

impl<'a> Builder<'a, '_> {
    /// Everything that sends or takes packets at a host.
    pub(super) fn ends(
        &mut self,
        node: usize,
        paths: &[Paths],
    ) -> Result<(Vec<Receiver>, Vec<Output>), Error> {
        let (mut receivers, mut leaving) = (Vec::new(), Vec::new());
        let (mut refused, around) = (Vec::new(), self.around());
        for Together { kind, sent, received } in self.together(node, paths).into_values() {
            let (library, captures) = (self.library, &mut self.captures);
            let traffics = &self.experiment.traffic;
            let mut capture =
                |traffic: usize, path: &str, bytes: bool| -> Result<Records, String> {
                    let wrong = |error: String| format!("`{}`: {error}", shorten(path));
                    let reader = library.open(path).map_err(wrong)?;
                    let (records, slot) = replay::open(reader, path, bytes).map_err(wrong)?;
                    let (mark, key) =
                        (traffics[traffic].kind_mark.clone(), traffics[traffic].key.clone());
                    captures.push(Capture { mark, key, slot });
                    Ok(records)
                };
            (kind.ends)(&mut Ends {
                site: around.site(node, &mut self.graph, &mut self.names),
                sent,
                received,
                receivers: &mut receivers,
                leaving: &mut leaving,
                capture: &mut capture,
                refused: &mut refused,
            })?;
        }
        for (traffic, found, right) in refused {
            let entry = &self.experiment.traffic[traffic];
            self.reporter.report(&entry.kind_mark, &entry.key, Fault::new(found, right));
        }
        Ok((receivers, leaving))
    }

    /// The flows of a host, grouped by what builds their endpoints, in the order of the registry.
    fn together(&self, node: usize, paths: &[Paths]) -> BTreeMap<usize, Together<'a>> {
        let order: Vec<&str> = self
            .library
            .kinds()
            .family(Family::Traffic)
            .filter_map(|kind| kind.maker.downcast_ref::<TrafficKind>())
            .map(|kind| kind.together)
            .collect();
        let mut all: BTreeMap<usize, Together<'a>> = BTreeMap::new();
        for (ends, sends) in [(&self.flows.sent, true), (&self.flows.received, false)] {
            for &index in ends.get(&node).into_iter().flatten() {
                let flow = self.flow(index, paths);
                let kind = flow.kind.maker::<TrafficKind>();
                let place = order.iter().position(|&known| known == kind.together);
                let new = || Together { kind, sent: Vec::new(), received: Vec::new() };
                let together = all.entry(place.unwrap_or(order.len())).or_insert_with(new);
                let flows = if sends { &mut together.sent } else { &mut together.received };
                flows.push(flow);
            }
        }
        all
    }

    fn flow(&self, index: usize, paths: &[Paths]) -> Flow<'a> {
        let flow = &self.flows.all[index];
        let entry = &self.experiment.traffic[flow.traffic];
        let Paths { there, back } = paths[flow.traffic];
        Flow {
            traffic: flow.traffic,
            number: flow.number,
            class: &entry.name,
            kind: &entry.kind,
            common: &entry.values,
            from: NodeId(flow.from as u32),
            to: NodeId(flow.to as u32),
            links: self.flows.links(self.network, flow),
            there,
            back,
            leaves: self.leaves.get(&index).copied(),
        }
    }
}
