//! What a drawing of a running router shows beside its state: where its routes come from, and what is on the way of
//! packets at each port (D-18).

use super::State;
use lastmeter_base::Rate;
use serde_json::{Value, json};

impl State {
    /// What is configured, for a drawing.
    pub(super) fn drawn(&self) -> Value {
        let config = &self.config;
        let mut sources = vec!["router.toml".to_owned()];
        sources.extend(config.table.clone());
        sources.extend(config.fpm.map(|address| format!("FRR at {address}")));
        sources.extend(config.kernel_routes.then(|| "the kernel".to_owned()));
        let ports = config.ports.iter().zip(&self.found).map(|(port, found)| {
            json!({
                "name": port.name,
                "interface": port.interface,
                "line": port.rate.or(found.line).map(Rate::as_bits),
                "queue": port.queue.as_ref().map_or("drop-tail", |queue| queue.page.name),
                "plugins": port.plugins,
                "departing": port.departing,
            })
        });
        let flows = self.bound.flows.iter().map(|flow| flow.name.clone());
        json!({
            "sources": sources,
            "ports": ports.collect::<Vec<_>>(),
            "filters": config.filters.len(),
            "rules": config.rules,
            "policies": config.policies.len(),
            "flows": flows.collect::<Vec<_>>(),
            "fast": config.fast,
            "fabric": config.fabric.is_some(),
        })
    }
}
