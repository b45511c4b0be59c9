//! The parts in words: the run, warnings, the verdict, balance and provenance.

use super::text::{count_figure, escape, figure, share_figure, time_figure};
use crate::shape;
use crate::{Confidence, Ledger, Source};

/// What was run, for how long, and from which inputs.
pub(super) fn run(ledger: &Ledger, out: &mut String) {
    let provenance = &ledger.provenance;
    let level = match provenance.level.as_str() {
        "L0" => "live, L0: no rights".to_owned(),
        "L1" => "live, L1: sampled".to_owned(),
        "L2" => "live, L2: performance counters".to_owned(),
        other => escape(other),
    };
    let duration = time_figure(ledger.duration, "length of the run, in its own time");
    let mut words = vec![duration, level];
    if let Some(warm_up) = ledger.warm_up {
        words[0] += &format!(" after a warm-up of {}", time_figure(warm_up, "left out"));
    }
    // A live run draws no random numbers.
    if let Some(seed) = provenance.seed.filter(|_| !shape::is_live(ledger)) {
        words.push(format!("seed {seed}"));
    }
    words.extend(provenance.host.as_ref().map(|host| format!("on {}", escape(host))));
    words.retain(|word| !word.is_empty());
    out.push_str(&format!("<p class=\"soft\">{}</p>\n", words.join(" · ")));
}

/// Warnings first: the run was stopped, or did not keep up.
pub(super) fn warnings(ledger: &Ledger, out: &mut String) {
    let mut warn = |words: &str| {
        out.push_str(&format!("<p class=\"warn\" role=\"alert\">⚠ {words}</p>\n"));
    };
    if ledger.provenance.partial {
        warn("Partial: the run was stopped early; all figures are up to that point.");
    }
    if let Some(certificate) = ledger.certificate.as_ref().filter(|one| !one.kept_up) {
        warn(&escape(match certificate.words.as_str() {
            "" => "Did not keep up with real time.",
            words => words,
        }));
    }
    let balance = &ledger.balance;
    if balance.packets_residual != 0 {
        let residual = balance.packets_residual;
        warn(&format!("The books do not balance: {residual} packets are not accounted for."));
    }
}

/// The verdict, as a sentence.
pub(super) fn verdict(ledger: &Ledger, out: &mut String) {
    let class = if shape::limiting(ledger).is_some() { "verdict" } else { "verdict quiet" };
    out.push_str(&format!("<section class=\"{class}\" aria-label=\"Verdict\">\n"));
    out.push_str(&format!("<p class=\"words\">{}</p>\n", escape(&shape::sentence(ledger))));
    let mut facts: Vec<(&str, String)> = Vec::new();
    if let Some(verdict) = &ledger.verdict {
        if let Some(resource) = &verdict.resource {
            facts.push(("Limiting resource", escape(resource)));
            let what = "share of the time for which it was busy or blocked";
            facts.extend(verdict.utilisation.map(|used| ("In use", share_figure(used, what))));
        }
        facts.push(("Confidence", confidence(verdict.confidence).to_owned()));
        let runner_up = verdict.runner_up.as_deref().map_or("none".to_owned(), escape);
        facts.push(("Next", runner_up));
    }
    if let [path] = ledger.paths.as_slice() {
        let totals = &path.totals;
        let goodput = crate::figures::rate(totals.goodput);
        let what = "bits per second that reached applications";
        facts.push(("Goodput", figure(&goodput, totals.goodput, "bit/s", what)));
        if let Some(latency) = totals.latency {
            let mean = time_figure(latency.mean, "mean latency from source to sink");
            facts.push(("Mean latency", mean));
        }
    }
    list(&facts, out);
    out.push_str("</section>\n");
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::High => {
            "<span title=\"utilisation and sensitivity clearly name the same resource\">high</span>"
        }
        Confidence::Medium => {
            "<span title=\"both name the same resource, with another close behind\">medium</span>"
        }
        Confidence::Low => "<span title=\"only utilisation or sensitivity names it\">low</span>",
        Confidence::Undecided => "<span title=\"the data are inconclusive\">undecided</span>",
    }
}

/// Facts with their names; the values are HTML.
pub(super) fn list(facts: &[(&str, String)], out: &mut String) {
    classed_list("facts", facts, out);
}

fn classed_list(class: &str, facts: &[(&str, String)], out: &mut String) {
    if facts.is_empty() {
        return;
    }
    out.push_str(&format!("<dl class=\"{class}\">\n"));
    for (name, value) in facts {
        out.push_str(&format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n"));
    }
    out.push_str("</dl>\n");
}

/// The balance, and where the figures come from.
pub(super) fn provenance(ledger: &Ledger, out: &mut String) {
    let (balance, provenance) = (&ledger.balance, &ledger.provenance);
    out.push_str(
        "<section aria-label=\"Balance and provenance\">\n<h2>Balance and provenance</h2>\n",
    );
    let equation = ledger.equation();
    let latency = time_figure(balance.latency_residual, "mean latency less the sum of stage means");
    out.push_str(&format!(
        "<p>Stages sum to the mean latency: residual {latency}. Packets {equation}: residual \
         {}.</p>\n",
        balance.packets_residual
    ));
    if !ledger.notes.is_empty() {
        out.push_str("<h3>Notes</h3>\n<ul>\n");
        ledger.notes.iter().for_each(|note| out.push_str(&format!("<li>{}</li>\n", escape(note))));
        out.push_str("</ul>\n");
    }
    if let Some(certificate) = &ledger.certificate {
        let kept = if certificate.kept_up { "Kept up with real time" } else { "Did not keep up" };
        out.push_str(&format!(
            "<h3>Certificate: {kept}</h3>\n<p>{}</p>\n",
            escape(&certificate.words)
        ));
        let on_time = |share: f64| share_figure(share, "share of departures that were on time");
        let facts = [
            ("Within 10 µs", on_time(certificate.within_10us)),
            ("Within 20 µs", on_time(certificate.within_20us)),
            ("Within 100 µs", on_time(certificate.within_100us)),
            ("Within 1 ms", on_time(certificate.within_1ms)),
            ("Worst lag", time_figure(certificate.worst_lag, "longest lag of a departure")),
            ("Overruns", count_figure(certificate.overruns, "packets", "lost to its own queues")),
            ("CPU", share_figure(certificate.cpu, "CPU seconds used per second")),
        ];
        list(&facts, out);
    }
    let source = |source: &Source| {
        format!("{}<small>{}</small>", escape(&source.name), escape(&source.hash))
    };
    let mut facts =
        vec![("Lastmeter", escape(&provenance.version)), ("Schema", escape(&ledger.schema))];
    if let Some(seed) = provenance.seed.filter(|_| !shape::is_live(ledger)) {
        facts.push(("Seed", seed.to_string()));
    }
    if !provenance.experiment.name.is_empty() {
        facts.push(("Experiment", source(&provenance.experiment)));
    }
    facts.extend(provenance.profiles.iter().map(|profile| ("Profile", source(profile))));
    classed_list("facts broad", &facts, out);
    out.push_str("</section>\n");
}
