//! Rings on which a token says who sends.

pub mod budget;
