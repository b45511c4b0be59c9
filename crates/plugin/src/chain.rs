//! Several policies in front of one device: what all of them allow.
//!
//! ```text
//! request -> policy 1 -> policy 2 -> ... -> effect = what 1 allows, and 2 allows, and ...
//! ```
//!
//! Every policy is asked about the same request, not about what is left of it after the others: so one that allows a
//! small request and denies a large one cannot be led to allow a part of a large one. The effect is what their answers
//! have in common. Two verdicts change where things are: after `move` and `remap` to other blocks, later policies see
//! the request where it now is (a device derived from a derived device), and what was already excluded stays excluded.
//! After `changed`, later policies see the changed bytes.
//!
//! So the effect of a chain lies within what each of its members allows of the request that it saw, which
//! [`Effect::within`] decides and a test shows for random policies of all four kinds.
//!
//! Rows: N-24, D-91.

use crate::request::{Answers, Body, Policy, Rect, Request, Verdict, block};
use lastmeter_base::Time;
use std::borrow::Cow;

/// The most policies of a chain.
pub const POLICIES_MAX: usize = 16;
/// The reason with which a request is denied of which its policies allow different parts.
pub const NOTHING_IN_COMMON: u32 = 0;

/// What a device does about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Denied {
        /// The policy that denied it, as its number in the chain.
        by: usize,
        /// Its reason.
        code: u32,
    },
    /// A packet leaves.
    Packet {
        /// The only interface on which it may leave; any if absent.
        interface: Option<u16>,
        /// The flow that it joins; its own if absent.
        flow: Option<u32>,
        /// Interfaces on which copies leave.
        clones: Vec<u16>,
    },
    /// A command reaches the disk.
    Block {
        /// The first logical block.
        lba: u64,
        /// How many blocks.
        blocks: u32,
    },
    /// A command reaches the display.
    Framebuffer {
        /// The part of the screen that it may see or change.
        rect: Rect,
        /// Where a copy comes from; it moves with what was clipped.
        from: (u16, u16),
    },
    /// A frame is sent.
    Frame {
        /// This part.
        region: Rect,
        /// At most so wide.
        width: u16,
        /// At most so high.
        height: u16,
        /// With at most this quality.
        quality: u8,
    },
}

impl Effect {
    /// What a request does if nothing is in its way.
    pub fn whole(body: &Body) -> Effect {
        match *body {
            Body::Packet { .. } => {
                Effect::Packet { interface: None, flow: None, clones: Vec::new() }
            }
            Body::Block { lba, blocks, .. } => Effect::Block { lba, blocks },
            Body::Framebuffer { rect, from, .. } => Effect::Framebuffer { rect, from },
            Body::Frame { region, quality, .. } => {
                Effect::Frame { region, width: region.w, height: region.h, quality }
            }
        }
    }
    /// What a single policy, which is the `by`-th, allows of a request.
    pub fn of(body: &Body, verdict: Verdict, by: usize) -> Effect {
        let mut effect = Effect::whole(body);
        match (&mut effect, verdict) {
            (_, Verdict::Deny { code }) => return Effect::Denied { by, code },
            (_, Verdict::ReadOnly) => {
                if matches!(body, Body::Block { operation, .. } if block::writes(*operation)) {
                    return Effect::Denied { by, code: block::WRITE_PROTECTED };
                }
            }
            (Effect::Packet { interface, .. }, Verdict::ToInterface(to)) => *interface = Some(to),
            (Effect::Packet { flow, .. }, Verdict::ToFlow(to)) => *flow = Some(to),
            (Effect::Packet { clones, .. }, Verdict::Clone(to)) => clones.push(to),
            (Effect::Block { lba, blocks }, Verdict::Remap { lba: to, blocks: fewer }) => {
                (*lba, *blocks) = (to, fewer);
            }
            (Effect::Framebuffer { rect, from }, Verdict::Clip(part)) => {
                *from = follow(*from, *rect, part);
                *rect = part;
            }
            (Effect::Framebuffer { rect, .. }, Verdict::Move { x, y }) => (rect.x, rect.y) = (x, y),
            (Effect::Frame { region, width, height, .. }, Verdict::Crop(part)) => {
                *region = part;
                (*width, *height) = ((*width).min(part.w), (*height).min(part.h));
            }
            (Effect::Frame { width, height, .. }, Verdict::Scale { w, h }) => {
                (*width, *height) = (w, h);
            }
            (Effect::Frame { quality, .. }, Verdict::Quality(lower)) => *quality = lower,
            _ => {}
        }
        effect
    }
    /// Whether it does nothing that `other` would not do, too. A packet is judged by where it goes: to any interface
    /// includes to one, and copies.
    pub fn within(&self, other: &Effect) -> bool {
        let fewer = |one: Option<u32>, other: Option<u32>| other.is_none() || one == other;
        match (self, other) {
            (Effect::Denied { .. }, _) => true,
            (
                Effect::Packet { interface, flow, clones },
                Effect::Packet { interface: allowed, flow: allowed_flow, .. },
            ) => {
                fewer(interface.map(u32::from), allowed.map(u32::from))
                    && fewer(*flow, *allowed_flow)
                    && clones.iter().all(|to| allowed.is_none_or(|allowed| allowed == *to))
            }
            (Effect::Block { lba, blocks }, Effect::Block { lba: from, blocks: most }) => {
                lba == from && blocks <= most
            }
            (Effect::Framebuffer { rect, .. }, Effect::Framebuffer { rect: allowed, .. }) => {
                rect.within(*allowed)
            }
            (
                Effect::Frame { region, width, height, quality },
                Effect::Frame { region: whole, width: wide, height: high, quality: best },
            ) => region.within(*whole) && width <= wide && height <= high && quality <= best,
            _ => false,
        }
    }
    /// What is allowed by `self`, from the policies before, and by `other`.
    fn meet(self, other: Effect, by: usize) -> Effect {
        let nothing = Effect::Denied { by, code: NOTHING_IN_COMMON };
        match (self, other) {
            (denied @ Effect::Denied { .. }, _) | (_, denied @ Effect::Denied { .. }) => denied,
            (
                Effect::Packet { interface, flow, mut clones },
                Effect::Packet { interface: to, flow: to_flow, clones: more },
            ) => {
                let differ = |one: Option<u32>, other: Option<u32>| {
                    one.is_some() && other.is_some() && one != other
                };
                if differ(interface.map(u32::from), to.map(u32::from)) || differ(flow, to_flow) {
                    return nothing;
                }
                let interface = interface.or(to);
                clones.extend(more);
                clones.retain(|clone| interface.is_none_or(|only| only == *clone));
                Effect::Packet { interface, flow: flow.or(to_flow), clones }
            }
            (Effect::Block { lba, blocks }, Effect::Block { blocks: most, .. }) => {
                Effect::Block { lba, blocks: blocks.min(most) }
            }
            (Effect::Framebuffer { rect, from }, Effect::Framebuffer { rect: other, .. }) => {
                let part = rect.meet(other);
                if part.is_empty() && !rect.is_empty() {
                    return nothing;
                }
                Effect::Framebuffer { rect: part, from: follow(from, rect, part) }
            }
            (
                Effect::Frame { region, width, height, quality },
                Effect::Frame { region: other, width: w, height: h, quality: q },
            ) => {
                let region = region.meet(other);
                if region.is_empty() {
                    return nothing;
                }
                let (width, height) = (width.min(w).min(region.w), height.min(h).min(region.h));
                Effect::Frame { region, width, height, quality: quality.min(q) }
            }
            _ => nothing,
        }
    }
    /// Where it is after the request moved from `before` to `after`.
    fn moved(self, before: &Body, after: &Body) -> Effect {
        match (self, before, after) {
            (Effect::Block { blocks, .. }, _, Body::Block { lba, .. }) => {
                Effect::Block { lba: *lba, blocks }
            }
            (
                Effect::Framebuffer { rect, from },
                Body::Framebuffer { rect: old, .. },
                Body::Framebuffer { rect: new, .. },
            ) => {
                let (x, y) = (rect.x - old.x + new.x, rect.y - old.y + new.y);
                Effect::Framebuffer { rect: Rect { x, y, ..rect }, from }
            }
            (effect, ..) => effect,
        }
    }
}

/// The source of a copy of which only `part` is left.
fn follow(from: (u16, u16), whole: Rect, part: Rect) -> (u16, u16) {
    let along = |from: u16, whole: u16, part: u16| from.saturating_add(part.saturating_sub(whole));
    (along(from.0, whole.x, part.x), along(from.1, whole.y, part.y))
}

/// The request as policies after this verdict see it.
fn seen_after(body: Body, verdict: Verdict) -> Body {
    match (body, verdict) {
        (Body::Block { operation, blocks, initiator, .. }, Verdict::Remap { lba, .. }) => {
            // A remap to fewer blocks at the end of the disk: the request keeps its length, as far as there are
            // numbers.
            let blocks = blocks.min((u64::MAX - lba).try_into().unwrap_or(u32::MAX));
            Body::Block { operation, lba, blocks, initiator }
        }
        (Body::Framebuffer { operation, rect, from, value }, Verdict::Move { x, y }) => {
            Body::Framebuffer { operation, rect: Rect { x, y, ..rect }, from, value }
        }
        (body, _) => body,
    }
}

/// What a chain decided about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the device does.
    pub effect: Effect,
    /// The first bytes, if a policy changed them; they replace as many as the request had.
    pub data: Option<Vec<u8>>,
}

impl Outcome {
    /// If nothing is in its way.
    fn whole(body: &Body) -> Outcome {
        Outcome { effect: Effect::whole(body), data: None }
    }
    /// What the verdict of the policy with this number leaves of it, and how the request is seen after it.
    fn narrow(&mut self, body: &mut Body, verdict: Verdict, number: usize) {
        let after = seen_after(*body, verdict);
        let allowed = Effect::of(body, verdict, number);
        let before = std::mem::replace(&mut self.effect, Effect::whole(&after));
        self.effect = before.moved(body, &after).meet(allowed, number);
        *body = after;
    }
}

/// Policies in front of one device, in order.
#[derive(Default)]
pub struct Chain {
    policies: Vec<Box<dyn Policy + Send>>,
    /// Kept, so that a batch need not allocate them.
    answers: Answers,
}

impl Chain {
    /// Adds a policy at the end. False, without effect, if there are [`POLICIES_MAX`].
    pub fn push(&mut self, policy: Box<dyn Policy + Send>) -> bool {
        let fits = self.policies.len() < POLICIES_MAX;
        if fits {
            self.policies.push(policy);
        }
        fits
    }
    /// How many policies it has.
    pub fn len(&self) -> usize {
        self.policies.len()
    }
    /// Whether it has none, and so allows all.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }
    /// The name of a policy.
    pub fn name(&self, policy: usize) -> Option<&str> {
        self.policies.get(policy).map(|policy| policy.name())
    }
    /// Decides about each request. `marks` holds the policies' words for each request's flow, of the first
    /// request first, as many as there are policies; they are updated.
    pub fn process(
        &mut self,
        now: Time,
        requests: &[Request<'_>],
        marks: &mut [u64],
        outcomes: &mut Vec<Outcome>,
    ) {
        assert_eq!(marks.len(), requests.len() * self.len(), "a mark for each policy and request");
        outcomes.clear();
        outcomes.extend(requests.iter().map(|request| Outcome::whole(&request.body)));
        let mut bodies: Vec<Body> = requests.iter().map(|request| request.body).collect();
        let (policies, answers) = (self.policies.len(), &mut self.answers);
        for (number, policy) in self.policies.iter_mut().enumerate() {
            // What was denied is not asked about any more.
            let open: Vec<usize> = (0..requests.len())
                .filter(|at| !matches!(outcomes[*at].effect, Effect::Denied { .. }))
                .collect();
            let asked: Vec<Request<'_>> = open
                .iter()
                .map(|at| Request {
                    body: bodies[*at],
                    mark: marks[at * policies + number],
                    data: outcomes[*at].data.as_deref().unwrap_or(requests[*at].data),
                    ..requests[*at]
                })
                .collect();
            policy.process(now, &asked, answers);
            let changed: Vec<Option<Vec<u8>>> = asked
                .iter()
                .zip(&answers.answers)
                .map(|(request, answer)| changed(request, answers, answer).map(Cow::into_owned))
                .collect();
            for ((at, answer), changed) in open.into_iter().zip(&answers.answers).zip(changed) {
                marks[at * policies + number] = answer.mark;
                outcomes[at].narrow(&mut bodies[at], answer.verdict, number);
                if changed.is_some() {
                    outcomes[at].data = changed;
                }
            }
        }
    }
    /// The same for one request, without allocating anything for those that pass.
    pub fn decide(&mut self, now: Time, request: &Request<'_>, marks: &mut [u64]) -> Outcome {
        assert_eq!(marks.len(), self.len(), "a mark for each policy");
        let (mut outcome, mut body) = (Outcome::whole(&request.body), request.body);
        for (number, policy) in self.policies.iter_mut().enumerate() {
            if matches!(outcome.effect, Effect::Denied { .. }) {
                break;
            }
            let data = outcome.data.as_deref().unwrap_or(request.data);
            let asked = Request { body, mark: marks[number], data, ..*request };
            policy.process(now, std::slice::from_ref(&asked), &mut self.answers);
            let answer = self.answers.answers[0];
            let changed = changed(&asked, &self.answers, &answer).map(Cow::into_owned);
            marks[number] = answer.mark;
            outcome.narrow(&mut body, answer.verdict, number);
            if changed.is_some() {
                outcome.data = changed;
            }
        }
        outcome
    }
}

/// The data of a request after an answer that changed them: what the plugin saw is replaced.
fn changed<'a>(
    request: &Request<'_>,
    answers: &'a Answers,
    answer: &crate::request::Answer,
) -> Option<Cow<'a, [u8]>> {
    if answer.verdict != Verdict::Changed {
        return None;
    }
    let new = answers.data(answer);
    match request.data.get(answer.seen as usize..) {
        Some(rest) if !rest.is_empty() => Some(Cow::Owned([new, rest].concat())),
        _ => Some(Cow::Borrowed(new)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Expression;
    use crate::expression::tests::{random_body, random_text};
    use crate::request::{Kind, framebuffer};
    use lastmeter_base::Stream;
    use proptest::prelude::*;

    fn request(body: Body) -> Request<'static> {
        Request { body, flow: 0, arrival: Time::from_ps(0), mark: 0, length: 0, data: &[] }
    }

    fn chain(kind: Kind, texts: &[&str]) -> Chain {
        let mut chain = Chain::default();
        for text in texts {
            assert!(chain.push(Box::new(Expression::new("e", kind, text).unwrap())));
        }
        chain
    }

    fn effect(chain: &mut Chain, body: Body) -> Effect {
        let (mut marks, mut outcomes) = (vec![0; chain.len()], Vec::new());
        chain.process(Time::from_ps(0), &[request(body)], &mut marks, &mut outcomes);
        outcomes.remove(0).effect
    }

    /// Allows a policy's verdict to be seen with the request that it was asked about.
    struct Spy(Expression, std::sync::Arc<std::sync::Mutex<Vec<(Body, Verdict)>>>);

    impl Policy for Spy {
        fn name(&self) -> &str {
            "spy"
        }
        fn process(&mut self, now: Time, requests: &[Request<'_>], answers: &mut Answers) {
            self.0.process(now, requests, answers);
            let seen = requests.iter().zip(&answers.answers);
            self.1
                .lock()
                .unwrap()
                .extend(seen.map(|(request, answer)| (request.body, answer.verdict)));
        }
    }

    #[test]
    fn a_derived_disk_lies_in_the_one_that_it_is_derived_from() {
        let read = |lba, blocks| Body::Block { operation: block::READ, lba, blocks, initiator: 0 };
        let derived = ["(remap (+ lba 1000) blocks)", "(within lba 1000 1100)"];
        let mut derived = chain(Kind::Block, &derived);
        assert_eq!(effect(&mut derived, read(5, 8)), Effect::Block { lba: 1005, blocks: 8 });
        assert_eq!(effect(&mut derived, read(95, 8)), Effect::Denied { by: 1, code: 0 });
    }

    #[test]
    fn clips_add_up_and_follow_a_move() {
        let rect = Rect { x: 0, y: 0, w: 100, h: 100 };
        let body =
            Body::Framebuffer { operation: framebuffer::COPY, rect, from: (200, 200), value: 0 };
        let mut parts =
            chain(Kind::Framebuffer, &["(clip 10 0 90 50)", "(move 300 0)", "(clip 0 20 999 999)"]);
        let rect = Rect { x: 310, y: 20, w: 90, h: 30 };
        assert_eq!(effect(&mut parts, body), Effect::Framebuffer { rect, from: (210, 220) });
        let mut none = chain(Kind::Framebuffer, &["(clip 0 0 10 10)", "(clip 50 50 10 10)"]);
        assert_eq!(effect(&mut none, body), Effect::Denied { by: 1, code: NOTHING_IN_COMMON });
    }

    #[test]
    fn a_policy_is_not_led_to_allow_a_part_of_what_it_denies() {
        let body = Body::Framebuffer {
            operation: framebuffer::DRAW,
            rect: Rect { x: 0, y: 0, w: 100, h: 100 },
            from: (0, 0),
            value: 0,
        };
        let mut policies = chain(Kind::Framebuffer, &["(clip 0 0 10 10)", "(< width 50)"]);
        assert_eq!(effect(&mut policies, body), Effect::Denied { by: 1, code: 0 });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// For random chains, requests and words of flows.
        #[test]
        fn one_request_is_decided_as_it_is_among_others(seed: u64) {
            let mut random = Stream::new(seed, "one");
            for kind in Kind::ALL {
                let texts: Vec<String> =
                    (0..1 + random.below(4)).map(|_| random_text(&mut random, kind)).collect();
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                let mut chain = chain(kind, &texts);
                let bodies: Vec<Body> = (0..20).map(|_| random_body(&mut random, kind)).collect();
                let data: Vec<u8> = (0..80).map(|_| random.bits() as u8).collect();
                let requests: Vec<Request<'_>> =
                    bodies.iter().map(|body| Request { data: &data, ..request(*body) }).collect();
                let mut marks: Vec<u64> =
                    (0..requests.len() * chain.len()).map(|_| random.bits()).collect();
                let (mut alone, mut outcomes, len) = (marks.clone(), Vec::new(), chain.len());
                chain.process(Time::from_ps(0), &requests, &mut marks, &mut outcomes);
                let own = requests.iter().zip(alone.chunks_mut(len));
                let own: Vec<Outcome> =
                    own.map(|(one, marks)| chain.decide(Time::from_ps(0), one, marks)).collect();
                prop_assert_eq!(own, outcomes);
                prop_assert_eq!(alone, marks);
            }
        }

        /// For random chains and requests of all four kinds.
        #[test]
        fn a_chain_allows_nothing_that_one_of_its_members_does_not(seed: u64) {
            let mut random = Stream::new(seed, "chains");
            for kind in Kind::ALL {
                let mut spied = Chain::default();
                let seen = std::sync::Arc::<std::sync::Mutex<Vec<_>>>::default();
                for _ in 0..1 + random.below(4) {
                    let text = random_text(&mut random, kind);
                    let expression = Expression::new("e", kind, &text).unwrap();
                    spied.push(Box::new(Spy(expression, seen.clone())));
                }
                for _ in 0..50 {
                    seen.lock().unwrap().clear();
                    let body = random_body(&mut random, kind);
                    let effect = effect(&mut spied, body);
                    let seen = seen.lock().unwrap();
                    // Back to the coordinates of each policy, from the last to the first.
                    let mut ours = effect.clone();
                    for (asked, verdict) in seen.iter().rev() {
                        let allowed = Effect::of(asked, *verdict, 0);
                        prop_assert!(ours.within(&allowed), "{ours:?} {allowed:?} {seen:?}");
                        ours = ours.moved(&seen_after(*asked, *verdict), asked);
                    }
                }
            }
        }
    }
}
