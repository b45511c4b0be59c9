//! Figures of `repro.toml`: curves whose points are formulas.

use super::formula::{Node, Template, Val};
use super::scope::{Missing, Scope, Vars};
use super::{Over, Placed, formula, over, template};
use crate::Error;
use crate::compute::Setting;
use lastmeter_base::kind::{Param, ParamKind, Values};
use lastmeter_lab::document::{Content, Decoder, Entry, Fault, Item, Shape, join};
use lastmeter_ledger::plots::{Plot, Series};

const PLOT: &[Param] = &[
    Param::required("x", ParamKind::Text).is("the label of the x axis"),
    Param::required("y", ParamKind::Text).is("the label of the y axis"),
    Param::or("full", ParamKind::Flag, "false").is("whether it is drawn in full runs only"),
    Param::optional("like", ParamKind::Text, "no other")
        .is("the figure of which it is a variation"),
];

/// A figure, or one for each value of its variables.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    values: Values,
    title: Placed<Template>,
    caption: Placed<Template>,
    over: Over,
    /// The variable of the x axis, with its values.
    at: (String, Placed<Node>),
    /// Whether something holds, at each value of the x axis.
    marks: Option<Placed<Node>>,
    series: Vec<Curve>,
}

/// A curve, or one for each value of its variables.
#[derive(Clone, Debug)]
struct Curve {
    name: Placed<Template>,
    over: Over,
    of: Placed<Node>,
    /// What it adds to the caption.
    say: Option<Placed<Template>>,
}

/// A figure with the keys that it inherits from another one.
fn whole(decoder: &mut Decoder<'_>, entry: &Entry, all: &[Entry], key: &str) -> Item {
    let mut item = entry.item.clone();
    let Some(like) = item.get("like").cloned() else { return item };
    let is = |other: &&Entry| matches!(&like.content, Content::Text(name) if *name == other.key);
    match (all.iter().find(is), &mut item.content) {
        (Some(base), Content::Table(own)) if base.item.get("like").is_none() => {
            let base = base.item.entries().unwrap_or_default();
            let more = base.iter().filter(|one| entry.item.get(&one.key).is_none());
            own.extend(more.cloned());
        }
        _ => {
            let right = "write the name of a figure that has no `like`";
            decoder.report(&like.mark, key, Fault::new("it cannot be like this one", right));
        }
    }
    item
}

/// Reads one of the figures.
pub(super) fn read(decoder: &mut Decoder<'_>, entry: &Entry, all: &[Entry]) -> Option<Drawn> {
    let key = &join("plots", &entry.key);
    let item = &whole(decoder, entry, all, key);
    let besides = &["title", "caption", "over", "at", "marks", "series"];
    let shape = Shape { what: "a figure", params: PLOT, kind: None, besides };
    let (_, values) = decoder.table(&shape, item, key);
    let text = |decoder: &mut Decoder<'_>, item: &Item, key: &str, name: &str| match item.get(name)
    {
        Some(found) => template(decoder, found, &join(key, name)),
        None => {
            let fault = Fault::new(format!("it has no `{name}`"), format!("write `{name} = ...`"));
            decoder.report(&item.mark, key, fault);
            None
        }
    };
    let at = item.get("at").and_then(Item::entries).and_then(<[_]>::first);
    let Some(at) = at else {
        let right = "write `at = { packets = [200, 5000] }`";
        decoder.report(&item.mark, key, Fault::new("there is no variable for the x axis", right));
        return None;
    };
    let curve = |decoder: &mut Decoder<'_>, item: &Item| {
        let key = &join(key, "series");
        let besides = &["name", "over", "of", "say"];
        let shape = Shape { what: "a curve", params: &[], kind: None, besides };
        decoder.table(&shape, item, key);
        let say = item.get("say").and_then(|say| template(decoder, say, &join(key, "say")));
        Some(Curve {
            name: text(decoder, item, key, "name")?,
            over: over(decoder, item, key),
            of: formula(decoder, item.get("of").unwrap_or(item), &join(key, "of"))?,
            say,
        })
    };
    let series = item.get("series").map(Item::items).unwrap_or_default();
    let marks = item.get("marks").and_then(|marks| formula(decoder, marks, &join(key, "marks")));
    Some(Drawn {
        title: text(decoder, item, key, "title")?,
        caption: text(decoder, item, key, "caption")?,
        over: over(decoder, item, key),
        at: (at.key.clone(), formula(decoder, &at.item, &join(key, "at"))?),
        marks,
        series: series.iter().filter_map(|item| curve(decoder, item)).collect(),
        values,
    })
}

impl Drawn {
    /// All its formulas and texts.
    pub(super) fn parts(&self) -> (Vec<&Placed<Node>>, Vec<&Placed<Template>>) {
        let curves = self.series.iter();
        let overs = curves.clone().flat_map(|curve| &curve.over).chain(&self.over);
        let mut formulas: Vec<_> = overs.map(|(_, values)| values).collect();
        formulas.extend(curves.clone().map(|curve| &curve.of));
        formulas.extend(self.marks.iter().chain([&self.at.1]));
        let mut texts: Vec<_> = curves.clone().map(|curve| &curve.name).collect();
        texts.extend(
            curves.filter_map(|curve| curve.say.as_ref()).chain([&self.title, &self.caption]),
        );
        (formulas, texts)
    }
    /// Names of its variables.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        let overs = self.series.iter().flat_map(|curve| &curve.over).chain(&self.over);
        overs.map(|(name, _)| name.as_str()).chain([self.at.0.as_str()])
    }
}

impl Setting<'_> {
    /// The figures that `repro.toml` describes.
    ///
    /// # Errors
    /// What is wrong with a formula or a run, and where.
    pub(crate) fn sweep_plots(&self) -> Result<Vec<Plot>, Error> {
        self.settle(|missing| {
            let mut plots = Vec::new();
            for drawn in &self.sweep.plots {
                if self.means.full || !drawn.values.get::<bool>("full") {
                    for vars in self.over(&drawn.over)? {
                        plots.push(self.plot(drawn, vars, missing)?);
                    }
                }
            }
            Ok(plots)
        })
    }

    fn plot(&self, drawn: &Drawn, mut vars: Vars, missing: &Missing) -> Result<Plot, Error> {
        let value = |of: &Placed<Node>, vars: &Vars| {
            let value = Scope::new(self, vars.clone(), missing).value(&of.what);
            value.map_err(|found| self.sweep.fail(&of.place, found))
        };
        let text = |of: &Placed<Template>, vars: &Vars| {
            let text = Scope::new(self, vars.clone(), missing).text(&of.what);
            text.map_err(|found| self.sweep.fail(&of.place, found))
        };
        let places = value(&drawn.at.1, &vars)?;
        let at = places.numbers().map_err(|found| self.sweep.fail(&drawn.at.1.place, found))?;
        vars.push((drawn.at.0.clone(), places));
        let (mut series, mut said) = (Vec::new(), Vec::new());
        for curve in &drawn.series {
            for own in self.over(&curve.over)? {
                let vars = [vars.clone(), own].concat();
                let heights = value(&curve.of, &vars)?;
                let heights = heights.numbers();
                let heights = heights.map_err(|found| self.sweep.fail(&curve.of.place, found))?;
                // A single value is drawn as a level.
                let heights = heights.iter().copied().cycle();
                let points = at.iter().copied().zip(heights).collect();
                series.push(Series { name: text(&curve.name, &vars)?, points });
                said.extend(curve.say.as_ref().map(|say| text(say, &vars)).transpose()?);
            }
        }
        let mut caption = text(&drawn.caption, &vars)?;
        if !said.is_empty() {
            caption = format!("{caption} {}.", said.join("; "));
        }
        let (x, y): (String, String) = (drawn.values.get("x"), drawn.values.get("y"));
        let mut plot = Plot::new(text(&drawn.title, &vars)?, caption, (&x, &y), series);
        if let Some(marks) = &drawn.marks {
            let holds = value(marks, &vars)?;
            let word = |holds: &Val| if *holds == Val::Truth(true) { "holds" } else { "not" };
            let words = holds.values().iter().map(|holds| word(holds).to_owned());
            plot.marks = at.iter().copied().zip(words).collect();
        }
        Ok(plot)
    }
}
