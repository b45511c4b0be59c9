//! The report of a live run: live beside model, plain beside scaled, and how the plugin came to the router.

use super::live::{Deployed, Pass, Row};
use crate::Report;
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_wave::measure::{self, Shot};
use lastmeter_wave::stream::Options;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Model and live differ by no more than this, in dB.
const APART: f64 = 0.5;
/// Scaling is better than plain queueing by at least this, in dB, where the stream does not fit.
const GAIN: f64 = 3.0;

/// PSNR over time: live and model, plain and scaled.
pub(super) fn plots(video: &Options, rows: &[Row]) -> Vec<Plot> {
    let plot = |row: &Row| {
        let names = [["plain, live", "plain, model"], ["scaled, live", "scaled, model"]];
        let curve = |name: &str, shots: &[Shot]| {
            let at = |shot: &Shot| (video.begins(shot.frame).as_secs_f64(), shot.psnr);
            Series { name: name.to_owned(), points: shots.iter().map(at).collect() }
        };
        let curves = (0..2).flat_map(|way| {
            (0..2).map(move |kind| curve(names[way][kind], &row.over_time[way][kind]))
        });
        let title = format!("{}, at {}; cross streams: {}", row.name, row.host, row.cross);
        let caption = "PSNR of luma of each frame.";
        Plot::new(title, caption, ("s", "dB"), curves.collect()).over_time()
    };
    rows.iter().map(plot).collect()
}

/// The table, and whether everything is as it should be.
pub(super) fn report(rows: &[Row], plain: &Pass, scaled: &Pass, late: u64) -> Report {
    let mut text = String::from(
        "receiver  cross  plain: live, model       scaled: live, model      gain       \
         broken: plain, scaled\n",
    );
    let (mut lines, mut good) = (Vec::new(), true);
    for row in rows {
        let [[plain_live, plain_model], [scaled_live, scaled_model]] = row.psnr;
        let gain = scaled_live - plain_live;
        let apart = [plain_live - plain_model, scaled_live - scaled_model].map(f64::abs);
        let near = apart.iter().all(|&apart| apart <= APART);
        // Where nothing had to be dropped there is nothing to gain.
        let enough = row.first_drop.is_none() || gain >= GAIN;
        let quick = row.settled.iter().all(|&settled| settled < measure::ALLOWED);
        let whole = row.broken[1] == 0;
        good &= near && enough && quick && whole;
        text += &format!(
            "{:8}  {:5}  {plain_live:6.2} dB, {plain_model:6.2} dB     \
             {scaled_live:6.2} dB, {scaled_model:6.2} dB  {gain:6.2} dB   {}, {} of {}\n",
            row.host, row.cross, row.broken[0], row.broken[1], row.something
        );
        if row.cross > 0 {
            let ms =
                |time: &lastmeter_base::Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
            let settled: Vec<String> = row.settled.iter().map(ms).collect();
            let first = row.first_drop.as_ref().map_or("none".to_owned(), ms);
            text += &format!(
                "          settled after the beginning of each burst: {}; first packet dropped \
                 after {first}; arrives: {:.2}, {:.2} Mbit/s\n",
                settled.join(", "),
                row.rate[0] / 1e6,
                row.rate[1] / 1e6
            );
        }
        lines.push(json!({
            "receiver": row.host, "traffic": row.name, "cross": row.cross,
            "psnr": { "plain": { "live": plain_live, "model": plain_model },
                      "scaled": { "live": scaled_live, "model": scaled_model } },
            "gain": gain, "within": near,
            "broken": { "plain": row.broken[0], "scaled": row.broken[1] }, "frames": row.something,
            "settled": row.settled.iter().map(|time| time.as_secs_f64()).collect::<Vec<_>>(),
            "first_drop": row.first_drop.map(|time| time.as_secs_f64()),
            "arrives": { "plain": row.rate[0], "scaled": row.rate[1] },
        }));
    }
    if let Some(deployed) = &scaled.deployed {
        let (words, line) = told(deployed, scaled);
        text += &words;
        lines.push(line);
    }
    for (name, pass) in [("plain", plain), ("scaled", scaled)] {
        text += &format!("routers dropped, {name}: {}\n", reasons(&pass.dropped));
    }
    let late = late as f64 / 1e9;
    text += &format!("the latest packet left {:.1} ms after its time\n", late * 1e3);
    lines.push(
        json!({ "dropped": { "plain": plain.dropped, "scaled": scaled.dropped }, "late": late }),
    );
    Report { text, json: lines, good }
}

fn reasons(dropped: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> =
        dropped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

/// How the plugin came to the router.
fn told(deployed: &Deployed, pass: &Pass) -> (String, Value) {
    let sent = pass.logs.values().flat_map(|log| log.sent.values()).filter_map(|sent| sent.first());
    let first = sent.map(|sent| sent.at).min().unwrap_or(0);
    let after = |at: u64| at.saturating_sub(first) as f64 / 1e9;
    let Deployed { noticed, fetched, loaded, passed, stages } = deployed;
    let of = |names: &[&str]| -> f64 {
        stages.iter().filter(|(name, _)| names.contains(&name.as_str())).map(|stage| stage.1).sum()
    };
    let download = of(&["index", "signature", "module"]);
    let text = format!(
        "the plugin, from the first packet sent: noticed after {:.0} ms, fetched after {:.0} ms, \
         loaded after {:.0} ms, a packet had passed it after {:.0} ms; of this download {:.1} ms, \
         verify {:.1} ms, compile {:.1} ms\n",
        after(*noticed) * 1e3,
        after(*fetched) * 1e3,
        after(*loaded) * 1e3,
        after(*passed) * 1e3,
        download * 1e3,
        of(&["verify"]) * 1e3,
        of(&["compile"]) * 1e3,
    );
    let line = json!({
        "noticed": after(*noticed), "fetched": after(*fetched), "loaded": after(*loaded),
        "passed": after(*passed), "download": download,
        "stages": stages.iter().cloned().collect::<BTreeMap<String, f64>>(),
    });
    (text, line)
}
