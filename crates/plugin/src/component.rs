//! A component beside our interface, for `lastmeter plugin bench`: what a packet costs as an argument of a call.
//!
//! ```text
//! process(packet: list<u8>) -> u64        wasmtime: cabi realloc, copy, call, return
//! ```
//!
//! The component model passes values, so the host enters the component twice for each packet (once for its memory),
//! and no batch lies in a table of the plugin's own. Nothing else of this project uses it.

use crate::host::Refusal;
use wasmtime::component::{Component, Linker, TypedFunc};
use wasmtime::{Config, Engine, Store};

/// A component that runs.
pub struct Called {
    store: Store<()>,
    process: TypedFunc<(&'static [u8],), (u64,)>,
}

/// Its epochs are on, but nobody advances them.
const TICKS: u64 = 1 << 40;

impl Called {
    /// Compiles a component that exports `process(list<u8>) -> u64`.
    ///
    /// # Errors
    /// If it is none.
    pub fn new(bytes: &[u8]) -> Result<Called, Refusal> {
        let fault = |error: wasmtime::Error| Refusal(format!("the component: {error:#}"));
        let mut config = Config::new();
        config.epoch_interruption(true).wasm_component_model(true);
        let engine = Engine::new(&config).map_err(fault)?;
        let component = Component::from_binary(&engine, bytes).map_err(fault)?;
        let mut store = Store::new(&engine, ());
        store.set_epoch_deadline(TICKS);
        let instance = Linker::new(&engine).instantiate(&mut store, &component).map_err(fault)?;
        let process = instance.get_typed_func(&mut store, "process").map_err(fault)?;
        Ok(Called { store, process })
    }
    /// What it says about a packet.
    ///
    /// # Errors
    /// If it trapped.
    #[inline]
    pub fn call(&mut self, packet: &'static [u8]) -> Result<u64, Refusal> {
        self.store.set_epoch_deadline(TICKS);
        let result = self.process.call(&mut self.store, (packet,));
        result.map(|(result,)| result).map_err(|error| Refusal(format!("{error:#}")))
    }
}
