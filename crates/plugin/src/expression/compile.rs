//! Compiles an expression to a module of the same interface as every plugin.
//!
//! Locals of `lm_process`: the batch, the descriptor, the end of the table, the data's address and length, then
//! those of the expression and scratch.

use super::WANTED;
use super::core::{Binary, Compare, Number, Outcome, Truth};
use crate::abi::{self, BATCH_MAX, DESCRIPTOR_LEN, Description, HEADER_LEN, Kinds, field};
use crate::request::{Kind, number};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, DataSection, ExportKind, ExportSection, Function,
    FunctionSection, GlobalSection, GlobalType, Instruction as I, MemArg, MemorySection,
    MemoryType, Module, TypeSection, ValType,
};

const DESCRIPTION_AT: u32 = 16;
const ROOM_AT: u32 = 64;
const PAGE_LEN: usize = 64 << 10;

const BATCH: u32 = 0;
const DESCRIPTOR: u32 = 1;
const END: u32 = 2;
const DATA: u32 = 3;
/// The first local of 64 bits.
const FIRST: u32 = 4;
/// `captured`, as 64 bits.
const CAPTURED: u32 = FIRST;
const EXPRESSION: u32 = FIRST + 1;

/// The module of a checked expression that needs so many locals.
pub(crate) fn compile(kind: Kind, tree: &Outcome, locals: u32) -> Vec<u8> {
    let mut code = Code { code: Vec::new(), scratch: EXPRESSION + locals };
    code.body(tree);
    let mut function = Function::new([(3, ValType::I32), (code.scratch - FIRST, ValType::I64)]);
    for instruction in &code.code {
        function.instruction(instruction);
    }
    let room_len = HEADER_LEN + BATCH_MAX * (DESCRIPTOR_LEN + WANTED);
    let description = Description {
        kinds: Kinds::of(kind),
        room: ROOM_AT,
        room_len: room_len as u32,
        wanted: WANTED as u32,
    };
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32], [ValType::I32]);
    let mut functions = FunctionSection::new();
    functions.function(0);
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: (ROOM_AT as usize + room_len).div_ceil(PAGE_LEN) as u64,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut globals = GlobalSection::new();
    let plain = GlobalType { val_type: ValType::I32, mutable: false, shared: false };
    globals.global(plain, &ConstExpr::i32_const(DESCRIPTION_AT.cast_signed()));
    let mut exports = ExportSection::new();
    exports.export(abi::MEMORY, ExportKind::Memory, 0);
    exports.export(abi::PLUGIN, ExportKind::Global, 0);
    exports.export("lm_process", ExportKind::Func, 0);
    let mut codes = CodeSection::new();
    codes.function(&function);
    let mut data = DataSection::new();
    let offset = ConstExpr::i32_const(DESCRIPTION_AT.cast_signed());
    data.active(0, &offset, description.emit());
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&memories).section(&globals);
    module.section(&exports).section(&codes).section(&data);
    module.finish()
}

struct Code {
    code: Vec<I<'static>>,
    scratch: u32,
}

fn at(offset: usize, align: u32) -> MemArg {
    MemArg { offset: offset as u64, align, memory_index: 0 }
}

impl Code {
    fn push(&mut self, instructions: impl IntoIterator<Item = I<'static>>) {
        self.code.extend(instructions);
    }
    fn scratch(&mut self) -> u32 {
        self.scratch += 1;
        self.scratch - 1
    }
    /// For each descriptor: the outcome.
    fn body(&mut self, tree: &Outcome) {
        let len = DESCRIPTOR_LEN as i32;
        self.push([
            I::LocalGet(BATCH),
            I::I32Const(HEADER_LEN as i32),
            I::I32Add,
            I::LocalTee(DESCRIPTOR),
            I::LocalGet(BATCH),
            I::I32Load(at(0, 2)),
            I::I32Const(len),
            I::I32Mul,
            I::I32Add,
            I::LocalSet(END),
            I::Loop(BlockType::Empty),
            I::LocalGet(DESCRIPTOR),
            I::I32Load(at(field::OFFSET, 2)),
            I::LocalSet(DATA),
            I::LocalGet(DESCRIPTOR),
            I::I64Load32U(at(field::CAPTURED, 2)),
            I::LocalSet(CAPTURED),
        ]);
        self.outcome(tree);
        self.push([
            I::LocalGet(DESCRIPTOR),
            I::I32Const(len),
            I::I32Add,
            I::LocalTee(DESCRIPTOR),
            I::LocalGet(END),
            I::I32LtU,
            I::BrIf(0),
            I::End,
            I::I32Const(0),
            I::End,
        ]);
    }
    fn number(&mut self, tree: &Number) {
        match tree {
            Number::Const(number) => self.push([I::I64Const(*number)]),
            Number::Field(offset, width) => {
                let load = match width {
                    1 => I::I64Load8U(at(*offset, 0)),
                    2 => I::I64Load16U(at(*offset, 1)),
                    4 => I::I64Load32U(at(*offset, 2)),
                    _ => I::I64Load(at(*offset, 3)),
                };
                self.push([I::LocalGet(DESCRIPTOR), load]);
            }
            Number::Data(width, index) => self.data(*width, index),
            Number::Local(local) => self.push([I::LocalGet(EXPRESSION + local)]),
            Number::Binary(binary, a, b) => self.binary(*binary, a, b),
            Number::If(test, a, b) => {
                self.truth(test);
                self.push([I::If(BlockType::Result(ValType::I64))]);
                self.number(a);
                self.push([I::Else]);
                self.number(b);
                self.push([I::End]);
            }
            Number::Let(local, value, inner) => {
                self.number(value);
                self.push([I::LocalSet(EXPRESSION + local)]);
                self.number(inner);
            }
        }
    }
    /// Bytes of data in network order; zero beyond what was captured.
    fn data(&mut self, width: u8, index: &Number) {
        let place = self.scratch();
        self.number(index);
        self.push([
            I::LocalTee(place),
            I::LocalGet(CAPTURED),
            I::I64Const(i64::from(width)),
            I::I64Sub,
            I::I64LeS,
            I::LocalGet(place),
            I::I64Const(0),
            I::I64GeS,
            I::I32And,
            I::If(BlockType::Result(ValType::I64)),
        ]);
        for number in 0..width {
            if number > 0 {
                self.push([I::I64Const(8), I::I64Shl]);
            }
            self.push([
                I::LocalGet(DATA),
                I::LocalGet(place),
                I::I32WrapI64,
                I::I32Add,
                I::I64Load8U(at(usize::from(number), 0)),
            ]);
            if number > 0 {
                self.push([I::I64Or]);
            }
        }
        self.push([I::Else, I::I64Const(0), I::End]);
    }
    fn binary(&mut self, binary: Binary, a: &Number, b: &Number) {
        self.number(a);
        self.number(b);
        self.push([match binary {
            Binary::Add => I::I64Add,
            Binary::Subtract => I::I64Sub,
            Binary::Multiply => I::I64Mul,
            Binary::And => I::I64And,
            Binary::Or => I::I64Or,
            Binary::Xor => I::I64Xor,
            Binary::Left => I::I64Shl,
            Binary::Right => I::I64ShrU,
            Binary::Divide => return self.divide(I::I64DivS),
            Binary::Modulo => return self.divide(I::I64RemS),
        }]);
    }
    /// A division that cannot trap: by zero it is zero, and by -1 it is a subtraction.
    fn divide(&mut self, divide: I<'static>) {
        let (a, b) = (self.scratch(), self.scratch());
        let by_one = match divide {
            I::I64DivS => [I::I64Const(0), I::LocalGet(a), I::I64Sub],
            _ => [I::I64Const(0), I::I64Const(0), I::I64Or],
        };
        let result = BlockType::Result(ValType::I64);
        self.push([I::LocalSet(b), I::LocalSet(a), I::LocalGet(b), I::I64Eqz, I::If(result)]);
        self.push([I::I64Const(0), I::Else]);
        self.push([I::LocalGet(b), I::I64Const(-1), I::I64Eq, I::If(result)]);
        self.push(by_one);
        self.push([I::Else, I::LocalGet(a), I::LocalGet(b), divide, I::End, I::End]);
    }
    fn truth(&mut self, tree: &Truth) {
        match tree {
            Truth::Const(truth) => self.push([I::I32Const(i32::from(*truth))]),
            Truth::Compare(compare, a, b) => {
                self.number(a);
                self.number(b);
                self.push([match compare {
                    Compare::Equal => I::I64Eq,
                    Compare::Less => I::I64LtS,
                    Compare::LessOrEqual => I::I64LeS,
                }]);
            }
            Truth::All(truths) => self.chain(truths, true),
            Truth::Any(truths) => self.chain(truths, false),
            Truth::Not(truth) => {
                self.truth(truth);
                self.push([I::I32Eqz]);
            }
            Truth::If(test, a, b) => {
                self.truth(test);
                self.push([I::If(BlockType::Result(ValType::I32))]);
                self.truth(a);
                self.push([I::Else]);
                self.truth(b);
                self.push([I::End]);
            }
            Truth::Let(local, value, inner) => {
                self.number(value);
                self.push([I::LocalSet(EXPRESSION + local)]);
                self.truth(inner);
            }
        }
    }
    /// All of them, or any; later ones only if the earlier ones leave it open.
    fn chain(&mut self, truths: &[Truth], all: bool) {
        self.push([I::Block(BlockType::Result(ValType::I32))]);
        for truth in truths {
            self.push([I::I32Const(i32::from(!all))]);
            self.truth(truth);
            if all {
                self.push([I::I32Eqz]);
            }
            self.push([I::BrIf(0), I::Drop]);
        }
        self.push([I::I32Const(i32::from(all)), I::End]);
    }
    fn outcome(&mut self, tree: &Outcome) {
        match tree {
            Outcome::Test(truth) => {
                self.truth(truth);
                self.push([I::If(BlockType::Empty)]);
                self.verdict(number::ALLOW);
                self.push([I::Else]);
                self.deny();
                self.push([I::End]);
            }
            Outcome::Write { verdict, guard, fields } => {
                self.truth(guard);
                self.push([I::If(BlockType::Empty)]);
                for (offset, width, value) in fields {
                    self.push([I::LocalGet(DESCRIPTOR)]);
                    self.number(value);
                    self.push([match width {
                        2 => I::I64Store16(at(*offset, 1)),
                        4 => I::I64Store32(at(*offset, 2)),
                        _ => I::I64Store(at(*offset, 3)),
                    }]);
                }
                self.verdict(*verdict);
                self.push([I::Else]);
                self.deny();
                self.push([I::End]);
            }
            Outcome::If(test, a, b) => {
                self.truth(test);
                self.push([I::If(BlockType::Empty)]);
                self.outcome(a);
                self.push([I::Else]);
                self.outcome(b);
                self.push([I::End]);
            }
            Outcome::Let(local, value, inner) => {
                self.number(value);
                self.push([I::LocalSet(EXPRESSION + local)]);
                self.outcome(inner);
            }
        }
    }
    fn verdict(&mut self, verdict: u8) {
        let store = I::I32Store8(at(field::VERDICT, 0));
        self.push([I::LocalGet(DESCRIPTOR), I::I32Const(i32::from(verdict)), store]);
    }
    fn deny(&mut self) {
        self.push([I::LocalGet(DESCRIPTOR), I::I32Const(0), I::I32Store(at(field::CODE, 2))]);
        self.verdict(number::DENY);
    }
}
