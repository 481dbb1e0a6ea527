//! The codes against an independent implementation, against each other, and against golden bytes.

use braid_layout::code::{Code, CodeError, Kernel, xor_into};
use braid_layout::{Role, Scheme, Shape};
use proptest::prelude::*;
use reed_solomon_erasure::galois_8;

const UNIT: u32 = 4 << 10;

fn shape(scheme: Scheme, k: u8, m: u8) -> Shape {
    Shape::new(scheme, k, m, UNIT).expect("a valid shape")
}

/// Bytes that differ between units and positions, the same on every run.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
    .take(length)
    .collect()
}

fn slices(units: &[Vec<u8>]) -> Vec<&[u8]> {
    units.iter().map(Vec::as_slice).collect()
}

/// Parity of `length` bytes by the code under test, into buffers with arbitrary content.
fn encode(code: Code, data: &[Vec<u8>], length: usize) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0xa5; length]; usize::from(code.shape().m())];
    code.encode(&slices(data), &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    parity
}

/// The coefficients from their definition, in the other implementation's field.
fn oracle_coefficient(shape: Shape, parity: u8, data: u8) -> u8 {
    if shape.scheme() != Scheme::Rs {
        return 1;
    }
    let cauchy = |i: u8, j: u8| galois_8::div(1, galois_8::add(255 - i, j));
    let by_column = galois_8::div(cauchy(parity, data), cauchy(0, data));
    galois_8::div(by_column, galois_8::div(cauchy(parity, 0), cauchy(0, 0)))
}

/// Parity by the other implementation's products.
fn oracle_encode(shape: Shape, data: &[Vec<u8>], length: usize) -> Vec<Vec<u8>> {
    let unit = |parity| {
        let mut out = vec![0; length];
        for (j, bytes) in (0..).zip(data) {
            galois_8::mul_slice_xor(oracle_coefficient(shape, parity, j), bytes, &mut out[..bytes.len()]);
        }
        out
    };
    (0..shape.m()).map(unit).collect()
}

fn roles(shape: Shape) -> Vec<Role> {
    (0..shape.k()).map(Role::Data).chain((0..shape.m()).map(Role::Parity)).collect()
}

/// Every way to lose `count` of `of` units.
fn losses(of: usize, count: usize) -> Vec<Vec<usize>> {
    let subsets = (0u64..1 << of).filter(|set| set.count_ones() as usize == count);
    subsets.map(|set| (0..of).filter(|i| set >> i & 1 == 1).collect()).collect()
}

/// Loses the units at these indices among all roles, reconstructs them, compares. Data may have been encoded
/// short; reconstructed units have the parity's length, zeros included.
fn check_loss(code: Code, data: &[Vec<u8>], parity: &[Vec<u8>], lost: &[usize]) {
    let length = parity.first().map_or(0, Vec::len);
    let all: Vec<(Role, &Vec<u8>)> = roles(code.shape()).into_iter().zip(data.iter().chain(parity)).collect();
    let have: Vec<(Role, &[u8])> = all
        .iter()
        .enumerate()
        .filter(|(index, _)| !lost.contains(index))
        .map(|(_, (role, unit))| (*role, unit.as_slice()))
        .rev()
        .collect();
    let mut found = vec![vec![0x5a; length]; lost.len()];
    let mut targets: Vec<(Role, &mut [u8])> =
        lost.iter().zip(&mut found).map(|(index, unit)| (all[*index].0, unit.as_mut_slice())).collect();
    code.reconstruct(&have, &mut targets).expect("at most m are lost");
    for (index, found) in lost.iter().zip(&found) {
        let mut expected = all[*index].1.clone();
        expected.resize(length, 0);
        assert!(*found == expected, "{} lost {lost:?}: {:?} came back wrong", code.shape(), all[*index].0);
    }
}

/// Every shape with up to 8 columns, and the widest ones.
fn shapes() -> Vec<Shape> {
    let mut shapes =
        vec![shape(Scheme::Raid0, 1, 0), shape(Scheme::Raid0, 64, 0), shape(Scheme::Raid5, 63, 1)];
    shapes.extend((1..=4).map(|m| shape(Scheme::Raid1, 1, m)));
    shapes.extend((2..=7).flat_map(|k| [shape(Scheme::Raid4, k, 1), shape(Scheme::Raid5, k, 1)]));
    shapes.extend((1..=4).flat_map(|m| (1..=8 - m).chain([64 - m]).map(move |k| shape(Scheme::Rs, k, m))));
    shapes
}

#[test]
fn every_scheme_is_tried() {
    for scheme in Scheme::ALL {
        assert!(shapes().iter().any(|shape| shape.scheme() == *scheme), "{scheme:?}");
    }
}

#[test]
fn coefficients_are_what_the_definition_says() {
    for shape in shapes() {
        let code = Code::new(shape);
        for (parity, data) in (0..shape.m()).flat_map(|i| (0..shape.k()).map(move |j| (i, j))) {
            assert_eq!(
                code.coefficient(parity, data),
                oracle_coefficient(shape, parity, data),
                "{shape} {parity} {data}"
            );
        }
    }
}

#[test]
fn every_kernel_gives_the_oracles_bytes() {
    let kernels = Kernel::detected();
    assert_eq!(kernels.last(), Some(&Kernel::SCALAR));
    assert_eq!(kernels[0], Kernel::best());
    for shape in shapes() {
        for length in [0, 1, 31, 127, 128, 129, 4096, 8192 + 77] {
            let data: Vec<Vec<u8>> = (0..shape.k()).map(|j| bytes(u64::from(j) + 1, length)).collect();
            let expected = oracle_encode(shape, &data, length);
            for &kernel in &kernels {
                let parity = encode(Code::with_kernel(shape, kernel), &data, length);
                assert!(parity == expected, "{shape} by {}, {length} bytes", kernel.name());
            }
        }
    }
}

/// Each byte value times each coefficient of the matrix, in every position of a register.
#[test]
fn every_kernel_multiplies_every_byte() {
    let wide = shape(Scheme::Rs, 60, 4);
    let source: Vec<u8> = (0..=255u8).chain((0..=255).rev()).collect();
    for kernel in Kernel::detected() {
        for (parity, data) in (0..4).flat_map(|i| (0..60).map(move |j| (i, j))) {
            let mut expected = bytes(9, source.len());
            let mut sum = expected.clone();
            galois_8::mul_slice_xor(oracle_coefficient(wide, parity, data), &source, &mut expected);
            Code::with_kernel(wide, kernel).add(data, &source, parity, &mut sum);
            assert!(sum == expected, "{} times {data} into {parity}", kernel.name());
        }
    }
}

#[test]
fn all_loss_patterns_come_back_on_every_kernel() {
    for shape in shapes().into_iter().filter(|shape| shape.width() <= 8) {
        let data: Vec<Vec<u8>> =
            (0..shape.k()).map(|j| bytes(u64::from(j) + 40, 300 + usize::from(j))).collect();
        for kernel in Kernel::detected() {
            let code = Code::with_kernel(shape, kernel);
            let parity = encode(code, &data, 310);
            for lost in
                (0..=usize::from(shape.m())).flat_map(|count| losses(usize::from(shape.width()), count))
            {
                check_loss(code, &data, &parity, &lost);
            }
        }
    }
}

#[test]
fn too_many_losses_are_refused_and_nothing_is_written() {
    for shape in shapes() {
        let k = usize::from(shape.k());
        let m = usize::from(shape.m());
        let unit = vec![7; 64];
        let have: Vec<(Role, &[u8])> =
            roles(shape)[m + 1..].iter().map(|role| (*role, unit.as_slice())).collect();
        let mut buffers = vec![vec![0x5a; 64]; m + 1];
        let mut lost: Vec<(Role, &mut [u8])> =
            roles(shape).into_iter().zip(buffers.iter_mut().map(Vec::as_mut_slice)).collect();
        let refusal = Code::new(shape).reconstruct(&have, &mut lost).expect_err("k - 1 units do not do");
        assert_eq!(refusal, CodeError::TooFew { shape, there: k - 1, needed: shape.k(), missing: 1 });
        assert!(buffers.iter().flatten().all(|byte| *byte == 0x5a), "{shape} wrote");
    }
    let message =
        CodeError::TooFew { shape: shape(Scheme::Rs, 4, 2), there: 3, needed: 4, missing: 1 }.to_string();
    assert_eq!(
        message,
        "3 units of rs(4,2) are there, 1 fewer than the 4 that are needed to reconstruct another"
    );
}

#[test]
fn wrong_roles_are_refused() {
    let shape = shape(Scheme::Rs, 2, 2);
    let unit = [1u8; 8];
    let mut buffer = [0u8; 8];
    let mut check = |have: &[Role], lost: Role, expected: CodeError| {
        let have: Vec<(Role, &[u8])> = have.iter().map(|role| (*role, unit.as_slice())).collect();
        assert_eq!(Code::new(shape).reconstruct(&have, &mut [(lost, &mut buffer)]), Err(expected));
    };
    let d0 = Role::Data(0);
    let d1 = Role::Data(1);
    let p0 = Role::Parity(0);
    let p2 = Role::Parity(2);
    check(&[d0, d0], d1, CodeError::Twice { role: d0 });
    check(&[d0, p0], p0, CodeError::Twice { role: p0 });
    check(&[d0, p2], d1, CodeError::NoSuchRole { role: p2, shape });
    check(&[d0, p0], Role::Data(2), CodeError::NoSuchRole { role: Role::Data(2), shape });
}

/// A unit that is not asked for may be missing too, and lost buffers of different lengths are each filled.
#[test]
fn unasked_units_may_be_missing() {
    let code = Code::new(shape(Scheme::Rs, 3, 3));
    let data: Vec<Vec<u8>> = (0..3).map(|j| bytes(j + 70, 200)).collect();
    let parity = encode(code, &data, 200);
    let have: [(Role, &[u8]); 3] =
        [(Role::Parity(2), &parity[2]), (Role::Parity(0), &parity[0]), (Role::Data(1), &data[1])];
    let mut short = [0; 33];
    let mut whole = [0; 200];
    code.reconstruct(&have, &mut [(Role::Data(2), &mut short), (Role::Parity(1), &mut whole)])
        .expect("3 are there");
    assert!(short == data[2][..33]);
    assert!(whole.as_slice() == parity[1]);
}

#[test]
fn xor_and_mirror_are_what_their_names_say() {
    let data: Vec<Vec<u8>> = (0..5).map(|j| bytes(j + 90, 1000)).collect();
    let xor: Vec<u8> = (0..1000).map(|at| data.iter().fold(0, |sum, unit| sum ^ unit[at])).collect();
    for scheme in [Scheme::Raid4, Scheme::Raid5, Scheme::Rs] {
        assert!(encode(Code::new(shape(scheme, 5, 1)), &data, 1000) == [xor.clone()], "{scheme}");
    }
    for scheme in [Scheme::Raid1, Scheme::Rs] {
        assert!(
            encode(Code::new(shape(scheme, 1, 3)), &data[..1], 1000) == vec![data[0].clone(); 3],
            "{scheme}"
        );
    }
    let mut delta = data[0].clone();
    xor_into(&mut delta, &data[1][..500]);
    assert!((0..1000).all(|at| delta[at] == data[0][at] ^ if at < 500 { data[1][at] } else { 0 }));
}

fn any_code() -> impl Strategy<Value = Shape> {
    let rs = (1u8..=4).prop_flat_map(|m| (1..=64 - m).prop_map(move |k| shape(Scheme::Rs, k, m)));
    let xor = (2u8..=63).prop_map(|k| shape(Scheme::Raid5, k, 1));
    let mirror = (1u8..=4).prop_map(|m| shape(Scheme::Raid1, 1, m));
    prop_oneof![4 => rs, 1 => xor, 1 => mirror]
}

/// A shape, its data units with different lengths, the parity's length and a random order of the columns.
fn any_stripe() -> impl Strategy<Value = (Shape, Vec<Vec<u8>>, usize, Vec<usize>)> {
    (any_code(), 0usize..700, any::<u64>()).prop_flat_map(|(shape, length, seed)| {
        let lengths =
            prop::collection::vec(prop_oneof![Just(length), 0..=length, Just(0)], usize::from(shape.k()));
        let order = Just((0..usize::from(shape.width())).collect::<Vec<_>>()).prop_shuffle();
        (lengths, order).prop_map(move |(lengths, order)| {
            let data = lengths.iter().zip(seed..).map(|(length, seed)| bytes(seed, *length)).collect();
            (shape, data, length, order)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn short_units_encode_as_the_oracle_says((shape, data, length, _) in any_stripe()) {
        let expected = oracle_encode(shape, &data, length);
        for kernel in Kernel::detected() {
            prop_assert!(encode(Code::with_kernel(shape, kernel), &data, length) == expected, "{} {}", shape, kernel.name());
        }
    }

    #[test]
    fn any_m_lost_units_come_back((shape, data, length, order) in any_stripe(), count in 0usize..=4) {
        for kernel in Kernel::detected() {
            let code = Code::with_kernel(shape, kernel);
            let parity = encode(code, &data, length);
            check_loss(code, &data, &parity, &order[..count.min(usize::from(shape.m()))]);
        }
    }

    /// The rule that unit writes rely on: deltas, each at its own position in its unit, in any order, give
    /// the parity of the new data.
    #[test]
    fn deltas_in_any_order_give_the_new_parity(
        (shape, mut data, length, _) in any_stripe(),
        writes in prop::collection::vec((any::<u8>(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u64>()), 1..6),
        reversed in any::<bool>(),
    ) {
        let code = Code::new(shape);
        data.iter_mut().for_each(|unit| unit.resize(length, 0));
        let mut parity = encode(code, &data, length);
        let mut deltas = Vec::new();
        for (unit, a, b, seed) in writes {
            let unit = unit % shape.k();
            let a = a.index(length + 1);
            let b = b.index(length + 1);
            let from = a.min(b);
            let to = a.max(b);
            let mut delta = bytes(seed, to - from);
            let old = &mut data[usize::from(unit)][from..to];
            let new = delta.clone();
            xor_into(&mut delta, old);
            old.copy_from_slice(&new);
            deltas.push((unit, from, delta));
        }
        if reversed {
            deltas.reverse();
        }
        for (unit, from, delta) in &deltas {
            for (index, parity) in (0..).zip(&mut parity) {
                code.add(*unit, delta, index, &mut parity[*from..]);
            }
        }
        prop_assert!(parity == oracle_encode(shape, &data, length));
    }
}

/// The matrix and the parity of one input, as text. Parity on disk depends on these numbers, so they may
/// never change: a code with other numbers is a new scheme with a new scheme number.
#[test]
fn golden() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut text =
        String::from("# coefficients of rs: one row per parity unit, one column per data unit, hex\n");
    for parity in 0..4 {
        let row: Vec<String> = (0..60)
            .map(|data| hex(&[Code::new(shape(Scheme::Rs, 60, 4)).coefficient(parity, data)]))
            .collect();
        text += &format!("{}\n", row.join(" "));
    }
    text += "# columns 60 to 62, which only narrower parity reaches\n";
    for (m, parity) in [(3, 0), (3, 1), (3, 2), (2, 0), (2, 1), (1, 0)] {
        let code = Code::new(shape(Scheme::Rs, 64 - m, m));
        let row: Vec<String> = (60..64 - m).map(|data| hex(&[code.coefficient(parity, data)])).collect();
        text += &format!("{}: {parity}: {}\n", code.shape(), row.join(" "));
    }
    text += "# parity where byte b of data unit j is (37 j + 11 b + 5) mod 256, for 32 bytes\n";
    for shape in [
        (Scheme::Raid1, 1, 2),
        (Scheme::Raid4, 4, 1),
        (Scheme::Raid5, 4, 1),
        (Scheme::Rs, 4, 2),
        (Scheme::Rs, 8, 3),
        (Scheme::Rs, 10, 4),
    ]
    .map(|(scheme, k, m)| shape(scheme, k, m))
    {
        let data: Vec<Vec<u8>> = (0..u32::from(shape.k()))
            .map(|j| (0..32u32).map(|b| (37 * j + 11 * b + 5).to_le_bytes()[0]).collect())
            .collect();
        for (parity, unit) in encode(Code::new(shape), &data, 32).iter().enumerate() {
            text += &format!("{shape} parity {parity}: {}\n", hex(unit));
        }
    }
    assert!(text == include_str!("../golden/code.txt"), "parity changed; it is now\n{text}");
}
