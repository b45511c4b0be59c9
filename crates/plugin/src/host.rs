//! Compiles modules into classes, after it has checked what they import, export and say about themselves.
//!
//! A module is untrusted even where its signature is good: it is at most [`MODULE_LEN_MAX`] long, has no start
//! function, imports nothing but [`crate::abi::IMPORTS`], and states the interface's version and the kinds that it
//! handles. What is wrong is refused here, when it is loaded, not later when a request comes.
//!
//! Compiled modules are kept in memory under the hash of their bytes, for as long as an instance uses them. They
//! are not kept on disk: a compiled module is machine code without a signature, and compiling takes about a
//! millisecond.
//!
//! Rows: D-88, D-89.

use crate::abi::{
    self, DESCRIPTION_LEN, Description, EXPORTS, Function, IMPORTS, INTERFACE, INTERFACE_STEM,
    Number,
};
use crate::request::Kind;
use crate::state::{self, State};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use wasmtime::{
    Config, Engine, ExternType, FuncType, InstanceAllocationStrategy, InstancePre, Linker, Memory,
    Module, Mutability, PoolingAllocationConfig, RegallocAlgorithm, Store, Val, ValType,
};

/// The longest module. It also bounds what compiling costs.
pub const MODULE_LEN_MAX: usize = 1 << 20;
/// A module's stack.
const STACK_LEN: usize = 256 << 10;
/// What the engine may need to know about one instance: its functions, globals and tables.
const INSTANCE_LEN_MAX: usize = 64 << 10;
/// Initialising and configuring may take this many times as long as a batch.
pub(crate) const PATIENCE: u64 = 20;

/// What each instance may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instances at once; addresses are set aside for so many.
    pub instances: u32,
    /// Bytes of memory of each.
    pub memory: usize,
    /// Entries in a table of each.
    pub elements: usize,
    /// Ticks of the epoch for one batch.
    pub ticks: u64,
    /// What stops a module that does not end. The other functions have `PATIENCE` times as much.
    pub patience: Patience,
}

/// What is counted to stop a module that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// The ticks of the epoch, which somebody advances: cheap, and depends on the machine.
    Ticks,
    /// About so many instructions for each tick: dearer, and the same on every machine, as a model has to be.
    Instructions(u64),
}

/// Instructions that a machine executes in a millisecond, about.
pub const INSTRUCTIONS_PER_TICK: u64 = 3_000_000;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            instances: 256,
            memory: 16 << 20,
            elements: 4096,
            ticks: 10,
            patience: Patience::Ticks,
        }
    }
}

impl Limits {
    /// Gives a call so many times what a batch has.
    #[inline]
    pub(crate) fn grant(&self, store: &mut Store<State>, times: u64) {
        let ticks = self.ticks * times;
        match self.patience {
            Patience::Ticks => store.set_epoch_deadline(ticks),
            Patience::Instructions(per_tick) => {
                store.set_fuel(ticks * per_tick).expect("the engine counts instructions");
            }
        }
    }
}

/// The hash of a module's bytes: SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(Sha256::digest(bytes).into())
    }
    /// From 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Hash> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).unwrap_or(0) as u8;
            *byte = digit(0) << 4 | digit(1);
        }
        Some(Hash(hash))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a module was refused: what was found, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(why.into()))
}

/// A module that was checked and compiled; instances are made of it.
pub struct Class {
    /// Its name.
    pub name: String,
    /// The hash of its bytes.
    pub hash: Hash,
    /// What it says about itself.
    pub description: Description,
    /// What each of its instances may use.
    pub limits: Limits,
    /// Where its instances begin.
    pub(crate) pre: InstancePre<State>,
    /// Names of the optional functions that it exports.
    pub exports: Vec<&'static str>,
    /// Whether it asks about queues.
    pub asks_queues: bool,
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.hash)
    }
}

/// Advances the epoch of a host; can be sent to another thread.
#[derive(Clone)]
pub struct Ticker(Engine);

impl Ticker {
    /// One tick. A plugin that has used up its ticks is stopped.
    pub fn tick(&self) {
        self.0.increment_epoch();
    }
}

/// Compiles and keeps classes.
pub struct Host {
    engine: Engine,
    linker: Linker<State>,
    limits: Limits,
    classes: Mutex<BTreeMap<Hash, Weak<Class>>>,
}

impl Host {
    /// A host with these limits. Fails where the addresses cannot be set aside.
    pub fn new(limits: Limits) -> Result<Host, Refusal> {
        let fault = |error: wasmtime::Error| Refusal(format!("the sandbox: {error:#}"));
        let mut pool = PoolingAllocationConfig::new();
        pool.total_core_instances(limits.instances)
            .total_memories(limits.instances)
            .total_tables(limits.instances)
            .max_tables_per_module(1)
            .max_memories_per_module(1)
            .max_core_instance_size(INSTANCE_LEN_MAX)
            .max_memory_size(limits.memory)
            .table_elements(limits.elements);
        let mut config = Config::new();
        config
            .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
            .epoch_interruption(limits.patience == Patience::Ticks)
            .consume_fuel(limits.patience != Patience::Ticks)
            .max_wasm_stack(STACK_LEN)
            // Two machines, and a model, must agree on every bit.
            .cranelift_nan_canonicalization(true)
            .wasm_relaxed_simd(false)
            .wasm_memory64(false)
            .wasm_multi_memory(false)
            .wasm_extended_const(false)
            .wasm_tail_call(false)
            .wasm_backtrace_max_frames(None)
            .cranelift_regalloc_algorithm(RegallocAlgorithm::Backtracking);
        let engine = Engine::new(&config).map_err(fault)?;
        let mut linker = Linker::new(&engine);
        state::define(&mut linker).map_err(fault)?;
        Ok(Host { engine, linker, limits, classes: Mutex::new(BTreeMap::new()) })
    }
    /// Advances the epoch: whoever runs plugins calls [`Ticker::tick`] at even intervals.
    pub fn ticker(&self) -> Ticker {
        Ticker(self.engine.clone())
    }
    /// What each instance may use.
    pub fn limits(&self) -> Limits {
        self.limits
    }
    /// Checks and compiles a module, which must handle `kind` if one is given. A module that is already in
    /// use is not compiled again.
    pub fn load(
        &self,
        name: &str,
        bytes: &[u8],
        kind: Option<Kind>,
    ) -> Result<Arc<Class>, Refusal> {
        scan(bytes)?;
        let hash = Hash::of(bytes);
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        let class = match classes.get(&hash).and_then(Weak::upgrade) {
            Some(class) if class.name == name => class,
            _ => Arc::new(self.compile(name, hash, bytes)?),
        };
        if let Some(kind) = kind {
            let kinds = class.description.kinds;
            if !kinds.has(kind) {
                let kind = kind.name();
                return refused(format!("it handles {kinds}, and is wanted for {kind}"));
            }
        }
        classes.retain(|_, class| class.strong_count() > 0);
        classes.insert(hash, Arc::downgrade(&class));
        Ok(class)
    }
    fn compile(&self, name: &str, hash: Hash, bytes: &[u8]) -> Result<Class, Refusal> {
        let invalid = |error: wasmtime::Error| Refusal(format!("not a valid module: {error:#}"));
        let module = Module::from_binary(&self.engine, bytes).map_err(invalid)?;
        check_imports(&module)?;
        let exports = check_exports(&module)?;
        let asks_queues = module.imports().any(|import| import.name() == state::QUEUE);
        let unfit = |error: wasmtime::Error| Refusal(format!("it does not fit: {error:#}"));
        let pre = self.linker.instantiate_pre(&module).map_err(unfit)?;
        // Nothing of the module runs yet: it has no start function.
        let mut store = self.store(State::new(self.limits.memory, self.limits.elements, 0, name));
        let instance = pre.instantiate(&mut store).map_err(unfit)?;
        let memory = instance.get_memory(&mut store, abi::MEMORY);
        let plugin = instance.get_global(&mut store, abi::PLUGIN);
        let (Some(memory), Some(plugin)) = (memory, plugin) else {
            return refused("it has no memory, or no description");
        };
        let Val::I32(at) = plugin.get(&mut store) else {
            return refused(format!("`{}` must be an i32", abi::PLUGIN));
        };
        let description = description(&memory, &store, at.cast_unsigned())?;
        let (name, limits) = (name.to_owned(), self.limits);
        Ok(Class { name, hash, description, limits, pre, exports, asks_queues })
    }
    /// A place for an instance.
    fn store(&self, state: State) -> Store<State> {
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| state);
        self.limits.grant(&mut store, PATIENCE);
        store
    }
}

fn description(memory: &Memory, store: &Store<State>, at: u32) -> Result<Description, Refusal> {
    let data = memory.data(store);
    let found = data.get(at as usize..).and_then(|rest| rest.first_chunk::<DESCRIPTION_LEN>());
    let outside = || Refusal(format!("`{}` points outside of the memory ({at:#x})", abi::PLUGIN));
    Description::parse(found.ok_or_else(outside)?, data.len()).map_err(Refusal)
}

/// What can be known of a module before it is compiled.
pub fn scan(bytes: &[u8]) -> Result<(), Refusal> {
    const START: u8 = 8;
    if bytes.len() > MODULE_LEN_MAX {
        let len = bytes.len();
        return refused(format!("a module of {len} bytes; at most {MODULE_LEN_MAX}"));
    }
    if !bytes.starts_with(b"\0asm") {
        return refused("not a WebAssembly module: it does not begin with \"\\0asm\"");
    }
    let Some(mut rest) = bytes.strip_prefix(b"\0asm\x01\0\0\0") else {
        return refused(
            "a component, or another version of WebAssembly; core modules are version 1",
        );
    };
    while let Some((id, after)) = rest.split_first() {
        let cut = || Refusal(format!("section {id} is cut short"));
        let (len, after) = leb(after).ok_or_else(cut)?;
        rest = after.get(len as usize..).ok_or_else(cut)?;
        if *id == START {
            return refused(
                "it has a start function; what has to be done first belongs into lm_init",
            );
        }
    }
    Ok(())
}

/// An unsigned number of at most five bytes, and what follows.
fn leb(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0u64;
    for (number, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * number);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()?, &bytes[number + 1..]));
        }
    }
    None
}

fn is(function: &Function, found: &FuncType) -> bool {
    let number = |value: ValType| match value {
        ValType::I32 => Some(Number::I32),
        ValType::I64 => Some(Number::I64),
        _ => None,
    };
    found.params().map(number).eq(function.parameters.iter().copied().map(Some))
        && found.results().map(number).eq(function.result.map(Some))
}

fn names(functions: &[Function]) -> String {
    let names: Vec<&str> = functions.iter().map(|function| function.name).collect();
    names.join(", ")
}

fn check_imports(module: &Module) -> Result<(), Refusal> {
    for import in module.imports() {
        let (from, name) = (import.module(), import.name());
        if from != INTERFACE {
            return refused(if from.starts_with(INTERFACE_STEM) {
                format!("made for `{from}`; this program has `{INTERFACE}`")
            } else {
                format!("it imports `{name}` from `{from}`; a plugin has only `{INTERFACE}`")
            });
        }
        let Some(function) = IMPORTS.iter().find(|function| function.name == name) else {
            let known = names(IMPORTS);
            return refused(format!("it imports `{name}`, which is not among {known}"));
        };
        match import.ty() {
            ExternType::Func(found) if is(function, &found) => {}
            _ => return refused(format!("it imports `{name}` as something else than {function}")),
        }
    }
    Ok(())
}

fn check_exports(module: &Module) -> Result<Vec<&'static str>, Refusal> {
    let mut present = Vec::new();
    for function in EXPORTS {
        match module.get_export(function.name) {
            None if function.required => return refused(format!("it does not export {function}")),
            None => {}
            Some(ExternType::Func(found)) if is(function, &found) => present.push(function.name),
            Some(_) => {
                let name = function.name;
                return refused(format!("it exports `{name}` as something else than {function}"));
            }
        }
    }
    let unknown = |name: &str| {
        name.starts_with("lm_")
            && name != abi::PLUGIN
            && EXPORTS.iter().all(|function| function.name != name)
    };
    if let Some(export) = module
        .exports()
        .find(|export| unknown(export.name()) && matches!(export.ty(), ExternType::Func(_)))
    {
        let (name, known) = (export.name(), names(EXPORTS));
        return refused(format!("it exports `{name}`, which is not among {known}"));
    }
    match module.get_export(abi::MEMORY) {
        Some(ExternType::Memory(_)) => {}
        _ => return refused(format!("it does not export its memory as `{}`", abi::MEMORY)),
    }
    match module.get_export(abi::PLUGIN) {
        Some(ExternType::Global(global))
            if matches!(global.content(), ValType::I32)
                && global.mutability() == Mutability::Const => {}
        _ => return refused(format!("it does not export `{}`, a constant i32", abi::PLUGIN)),
    }
    Ok(present)
}
