//! The expressions in the documents.

use lastmeter_plugin::Kind;
use lastmeter_plugin::expression::Expression;

#[test]
fn each_expression_in_the_documents_means_something() {
    let page = include_str!("../../../docs/expressions.md");
    let blocks = page.split("```lisp\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines: Vec<&str> = blocks.flat_map(str::lines).collect();
    assert!(lines.len() >= 4, "{lines:?}");
    for line in lines {
        let checks = |kind| Expression::new("page", kind, line).is_ok();
        assert!(Kind::ALL.into_iter().any(checks), "{line}");
    }
}
