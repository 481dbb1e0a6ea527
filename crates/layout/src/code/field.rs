//! The field GF(2^8) with the polynomial `x^8 + x^4 + x^3 + x^2 + 1` (0x11d), as tables built at compile
//! time.
//!
//! Addition and subtraction are XOR. The tables hold the same products in three forms, one per kind of
//! kernel: whole products for the scalar loop, products of nibbles for byte shuffles, bit matrices for GFNI.
//! GFNI's own multiply is fixed to another polynomial (0x11b), hence its affine instruction, which takes any.

/// The low eight bits of the field's polynomial, 0x11d.
const POLYNOMIAL_LOW: u8 = 0x1d;

/// `PRODUCTS[c][x]` is `c * x`.
pub(super) static PRODUCTS: [[u8; 256]; 256] = products();

/// `NIBBLES[c][x]` is `c * x` and `NIBBLES[c][16 + x]` is `c * (x << 4)`, for `x` in `0..16`.
#[cfg(any(test, target_arch = "x86_64"))]
pub(super) static NIBBLES: [[u8; 32]; 256] = nibbles();

/// `AFFINE[c]` is multiplication by `c` as the 8 by 8 bit matrix that GFNI's affine instruction takes: byte
/// `7 - i` says which bits of `x` sum to bit `i` of `c * x`.
#[cfg(any(test, target_arch = "x86_64"))]
pub(super) static AFFINE: [u64; 256] = affine();

/// `a * b`.
pub(super) const fn mul(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut shifted = a;
    let mut rest = b;
    while rest != 0 {
        if rest & 1 != 0 {
            product ^= shifted;
        }
        shifted = double(shifted);
        rest >>= 1;
    }
    product
}

/// `1 / a`, which is `a^254`. `a` is not zero.
pub(super) const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    let mut power = a;
    let mut product = 1;
    let mut squarings = 0;
    while squarings < 7 {
        power = mul(power, power);
        product = mul(product, power);
        squarings += 1;
    }
    product
}

const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { POLYNOMIAL_LOW } else { 0 }
}

const fn products() -> [[u8; 256]; 256] {
    let mut table = [[0; 256]; 256];
    let mut c: u8 = 0;
    loop {
        let mut x = 1;
        while x < 256 {
            let doubled = double(table[c as usize][x / 2]);
            table[c as usize][x] = if x % 2 == 1 { doubled ^ c } else { doubled };
            x += 1;
        }
        if c == 255 {
            return table;
        }
        c += 1;
    }
}

#[cfg(any(test, target_arch = "x86_64"))]
const fn nibbles() -> [[u8; 32]; 256] {
    let mut table = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            table[c][x] = PRODUCTS[c][x];
            table[c][16 + x] = PRODUCTS[c][x << 4];
            x += 1;
        }
        c += 1;
    }
    table
}

#[cfg(any(test, target_arch = "x86_64"))]
const fn affine() -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut bit = 0;
        while bit < 8 {
            let product = PRODUCTS[c][1 << bit];
            let mut i = 0;
            while i < 8 {
                if product >> i & 1 != 0 {
                    table[c] |= 1 << ((7 - i) * 8 + bit);
                }
                i += 1;
            }
            bit += 1;
        }
        c += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_field_of_0x11d() {
        assert_eq!(mul(0x80, 2), 0x1d);
        let mut power = 1;
        let order = (1..=255).find(|_| {
            power = mul(power, 2);
            power == 1
        });
        assert_eq!(order, Some(255), "2 generates every non-zero element of this field");
    }

    #[test]
    fn every_element_but_zero_has_its_inverse() {
        for a in 1..=255 {
            assert_eq!(mul(a, inverse(a)), 1, "inverse of {a}");
        }
    }

    #[test]
    fn the_three_tables_agree_with_multiplication() {
        for c in 0..=255u8 {
            for x in 0..=255u8 {
                let expected = mul(c, x);
                let row = usize::from(c);
                assert_eq!(PRODUCTS[row][usize::from(x)], expected, "{c} * {x}");
                let by_nibbles = NIBBLES[row][usize::from(x & 15)] ^ NIBBLES[row][16 + usize::from(x >> 4)];
                assert_eq!(by_nibbles, expected, "{c} * {x} by nibbles");
                let by_bits = (0..8).fold(0u8, |sum, i| {
                    let mask = AFFINE[row].to_le_bytes()[7 - i];
                    sum | (u8::from((mask & x).count_ones() % 2 == 1) << i)
                });
                assert_eq!(by_bits, expected, "{c} * {x} by bits");
            }
        }
    }
}
