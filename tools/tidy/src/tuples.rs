//! Tuples that only save lines: `let (a, b) = (x, y);`, and parameters that are tuples.

use syn::visit::Visit;

use crate::syntax::Parsed;

/// Counts of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tuples {
    /// `let (a, b) = (x, y);`.
    pub lets: usize,
    /// Parameters of functions.
    pub parameters: usize,
}

impl<'ast> Visit<'ast> for Tuples {
    fn visit_local(&mut self, local: &'ast syn::Local) {
        let is_built = local.init.as_ref().is_some_and(|init| matches!(*init.expr, syn::Expr::Tuple(_)));
        self.lets += usize::from(is_built && matches!(local.pat, syn::Pat::Tuple(_)));
        syn::visit::visit_local(self, local);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let is_tuple = |input: &&syn::FnArg| match input {
            syn::FnArg::Typed(typed) => matches!(*typed.pat, syn::Pat::Tuple(_)),
            syn::FnArg::Receiver(_) => false,
        };
        self.parameters += signature.inputs.iter().filter(is_tuple).count();
        syn::visit::visit_signature(self, signature);
    }
}

/// All of the sources'.
pub fn count(parsed: &[Parsed<'_>]) -> Tuples {
    let mut tuples = Tuples::default();
    parsed.iter().for_each(|one| tuples.visit_file(&one.file));
    tuples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tuples_that_are_built_to_be_taken_apart_count() {
        let text = "fn f((a, b): (u8, u8), c: (u8, u8)) {\n    let (d, e) = (a, b);\n    let (g, h) = c;\n}";
        let mut tuples = Tuples::default();
        tuples.visit_file(&syn::parse_file(text).expect("Rust"));
        assert_eq!(tuples, Tuples { lets: 1, parameters: 1 });
    }
}
