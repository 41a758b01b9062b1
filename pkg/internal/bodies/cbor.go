package bodies

import "encoding/binary"

// The major types of CBOR that matter here, and what ends a content without a length.
// https://www.rfc-editor.org/rfc/rfc8949.html#section-3
const (
	cborArray      = 4
	cborMap        = 5
	cborTag        = 6
	cborIndefinite = 31
	cborBreak      = 0xff
)

// checkCBOR counts what is in a body of CBOR, which is refused by who decodes it if
// it is none.
func checkCBOR(body []byte, l Limits) error {
	var c count
	c.start(l, false)
	// left is how many contents an array or map still has; below 0: until a break.
	var left []int64
	tags := 0
	for at := 0; at < len(body); {
		for len(left) > 0 && left[len(left)-1] == 0 {
			left = left[:len(left)-1]
			c.end()
		}
		if body[at] == cborBreak {
			if len(left) == 0 {
				return nil
			}
			left[len(left)-1] = 0
			at++
			continue
		}
		major, n, size := cborHead(body[at:])
		if size == 0 {
			return nil
		}
		at += size
		if major == cborTag { // a tag is in front of a content, and decoders recurse into it
			if tags++; above(tags, l.Depth) {
				return tooMuch("the body nests tags deeper than is allowed", l.Depth)
			}
			continue
		}
		tags = 0
		if len(left) > 0 {
			left[len(left)-1]--
		}
		if err := c.add(); err != nil {
			return err
		}
		if isText := major == 2 || major == 3; isText && n >= 0 {
			at += int(min(n, int64(len(body)-at)))
		} else if isText || major == cborArray || major == cborMap {
			if n > int64(len(body)) {
				return nil // refused: the contents are missing
			}
			contents, err := c.cbor(major, n)
			if err != nil {
				return err
			}
			left = append(left, contents)
		}
	}
	return nil
}

// cbor opens an array, a map or a string in pieces, and returns how many contents it
// has. Keys of maps count as members.
func (c *count) cbor(major byte, n int64) (contents int64, err error) {
	if err := c.open(list, nil); err != nil {
		return 0, err
	}
	if major == cborMap {
		if n > 0 {
			n *= 2
		}
		if c.limits.Members != Unlimited {
			c.current().most *= 2
		}
	}
	return n, nil
}

// cborHead is the head of a content: its major type, its number, which is -1 for
// contents without a length, and how long the head is; 0: it is none.
func cborHead(p []byte) (major byte, n int64, size int) {
	major, short := p[0]>>5, p[0]&31
	switch {
	case short < 24:
		return major, int64(short), 1
	case short == cborIndefinite:
		return major, -1, 1
	case short > 27:
		return 0, 0, 0
	}
	width := 1 << (short - 24)
	if len(p) < 1+width {
		return 0, 0, 0
	}
	var whole [8]byte
	copy(whole[8-width:], p[1:1+width])
	value := binary.BigEndian.Uint64(whole[:])
	const most = 1 << 40 // more than any body has
	return major, int64(min(value, most)), 1 + width
}
