//! A link whose rate changes with time, as a table says, with any queue discipline.

use super::{RateTable, TOWARD, TRACE_LEN_MAX, stand};
use crate::queue;
use crate::server::Service;
use lastmeter_base::kind::{FRAMING_MAX, Family, Kind, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{here, one_way};
use lastmeter_engine::site::{NodeKind, Ports, Site};
use lastmeter_engine::{Error, ResourceKind};
use std::sync::Arc;

const PAGE: &Page = &Page {
    name: "varying-rate",
    family: Family::Node,
    what: "A wire whose rate changes with time, as a table in the experiment or a file says.",
    ports: "any in --> [ queue ] --> (wire: rate now) --> link towards the destination",
    params: &[
        Param::optional("rates", ParamKind::Rates, "those of `file`")
            .is("when each rate begins; the first at 0 s"),
        Param::optional("file", ParamKind::Text, "`rates` are given")
            .is("a file of lines like `2.5 s, 800 kbit/s`"),
        Param::optional("every", ParamKind::Time, "never").is("after how long the table repeats"),
        Param::or("framing", ParamKind::Size { min: 0, max: FRAMING_MAX }, "0 B")
            .is("line time of each packet beyond its length"),
        Param::or("queue", ParamKind::Nested(Family::Queue), "{ drop-tail = {} }")
            .is("where packets wait for the wire"),
        TOWARD,
    ],
    deviations: &["While its rate is zero, a wire with a packet on it counts as busy."],
    counters: &[
        ("served", "packets sent"),
        ("refused", "packets that the queue had no room for"),
        ("dropped", "packets that the queue accepted and dropped later, or instead of others"),
        ("packets_most", "most packets that waited"),
    ],
    example: one_way! {
        "1 s", "alice" [
            "dsl" = r#"varying-rate = { rates = [["0 s", "2 Mbit/s"], ["300 ms", "8 Mbit/s"]] }"#,
        ] "bob",
        [r#"delay = "10 ms""#],
        "transfer" [r#"constant = { rate = "3 Mbit/s", size = "1500 B" }"#]
    },
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let wire = site.resource("wire", "", ResourceKind::Wire);
    let stage = site.stage(PAGE.name, Some(&wire));
    let steps = match (values.given("rates"), values.given::<String>("file")) {
        (Some(steps), None) => steps,
        (None, Some(path)) => {
            let text = site.read(&path, TRACE_LEN_MAX)?;
            RateTable::parse(&text).map_err(|error| format!("`{path}`, {error}"))?
        }
        (Some(_), Some(_)) => {
            return Err("it has both `rates` and a `file` of them".to_owned().into());
        }
        (None, None) => {
            return Err("it has neither `rates` nor a `file` of them".to_owned().into());
        }
    };
    let table = Arc::new(RateTable::new(steps, values.given("every"))?);
    let service = Service::Table { table, framing: values.get("framing") }.at(&stage);
    let described: Nested = values.get("queue");
    let server = queue::serve(&described, &queue::Site::of(site), service, stage.id, wire.id);
    stand(values, site, server)
}

#[cfg(test)]
mod tests {
    use super::super::check::Trial;
    use super::*;
    use crate::queue::DropTail;
    use crate::server::Server;
    use lastmeter_base::Bytes;
    use lastmeter_base::Duration;

    #[test]
    fn a_backlog_leaves_at_the_rate_that_holds() {
        let steps = RateTable::parse(b"0 s, 12 Mbit/s\n3 ms, 0 bit/s\n5 ms, 6 Mbit/s").unwrap();
        let table = Arc::new(RateTable::new(steps, None).unwrap());
        let trial = Trial { packets: 5, gap: Duration::from_us(1), wire: true, ..Trial::USUAL };
        let (_, arrivals) = trial.arrivals(|stage, wire| {
            let queue = DropTail::new(100, Bytes(u64::MAX));
            let service = Service::Table { table, framing: Bytes::ZERO };
            Box::new(Server::new(queue, service, stage, wire))
        });
        let left: Vec<u64> = arrivals.iter().map(|one| one.at.as_ps() / 1_000_000_000).collect();
        assert_eq!(left, [1, 2, 3, 7, 9]);
    }
}
