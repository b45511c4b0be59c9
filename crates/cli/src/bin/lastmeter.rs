//! The program `lastmeter`; all of it is in the library of the same name.

#[global_allocator]
static HEAP: lastmeter_linux::heap::HugePages = lastmeter_linux::heap::HugePages;

fn main() -> std::process::ExitCode {
    // Measurements run in helper processes, which are this program again.
    lastmeter::enter_if_asked();
    lastmeter_linux::heap::use_huge_pages();
    lastmeter::program(std::env::args_os()).into()
}
