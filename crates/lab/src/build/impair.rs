//! Impairments: nodes that packets pass, some with a wire of their own.

use super::{Builder, Made};
use crate::document::{Fault, shorten};
use lastmeter_base::{Bytes, NodeId};
use lastmeter_engine::{Error, PortId, ResourceInfo, ResourceKind};
use lastmeter_net::impair::{self, Kind, Setting, TRACE_LEN_MAX};
use std::io::Read;

impl Builder<'_, '_> {
    /// An impairment. What it does not concern leaves through a port of its own.
    pub(super) fn impairment(&mut self, node: usize, kind: &Kind) -> Result<Made, Error> {
        let (network, library) = (self.network, self.library);
        let single = &network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let shared = declared.count.is_some_and(|count| count > 1);
        let resource = kind.serves.then(|| {
            let name = single.name.clone();
            self.resources.insert(name.clone());
            self.graph.resource(ResourceInfo::new(name, ResourceKind::Wire))
        });
        let stage = format!("{} {}", declared.name, kind.page.name);
        let free = self.is_free(&stage);
        let stage = self.stage(stage, resource.filter(|_| !shared));
        let nodes = |names: &[String]| names.iter().map(|name| self.node_id(name)).collect();
        let read = |path: &str| {
            let mut text = Vec::new();
            let wrong = |error: String| format!("`{}`: {error}", shorten(path));
            let file = library.open(path).map_err(wrong)?;
            let most = TRACE_LEN_MAX.0 + 1;
            let len = file.take(most).read_to_end(&mut text);
            match len.map_err(|error| wrong(error.to_string()))? as u64 == most {
                true => Err(wrong(format!("it is longer than {TRACE_LEN_MAX}"))),
                false => Ok(text),
            }
        };
        let mut setting = Setting {
            site: self.site(&single.name, None, Bytes::ZERO),
            stage,
            resource,
            speed: self.speed(&single.name),
            free,
            nodes: &nodes,
            read: &read,
        };
        let element = match impair::build(kind, &declared.kind, &mut setting) {
            Ok(element) => element,
            Err(error) => {
                let right = format!("`lastmeter kinds {}` says what it can have", kind.page.name);
                let key = format!("nodes.{}", declared.name);
                self.reporter.report(&declared.mark, &key, Fault::new(error, right));
                return Ok(Made { input: None, outputs: Vec::new() });
            }
        };
        let element = self.graph.add_boxed(single.name.clone(), element)?;
        let mut leaving = vec![(element, PortId(0))];
        if declared.kind.values.has("toward") {
            leaving.push((element, PortId(1)));
        }
        let outputs = self.spread(node, leaving)?;
        Ok(Made { input: Some((element, PortId(0))), outputs })
    }

    fn node_id(&self, name: &str) -> Result<NodeId, String> {
        let place = self.network.nodes.iter().position(|node| node.name == name);
        match place {
            Some(node) => Ok(NodeId(node as u32)),
            None => Err(format!("there is no node `{}`", shorten(name))),
        }
    }
}
