package bodies

import "bytes"

// scanner counts what is in JSON. It takes the text in pieces and does not check
// that it is JSON: what is not is refused by who decodes it.
type scanner struct {
	count
	inString, escaped bool
	// keeping is set in a string whose content matters: text has so many bytes of it so far.
	keeping bool
	kept    int
	text    [32]byte
	// items is set where the first item of an array may begin.
	items bool
}

func (s *scanner) start(l Limits, patch bool) {
	s.count.start(l, patch)
	s.inString, s.escaped, s.keeping, s.kept, s.items = false, false, false, 0, false
}

// scan counts the next piece.
func (s *scanner) scan(p []byte) error {
	for i := 0; i < len(p); {
		if s.inString {
			i += s.skip(p[i:])
			s.keeping = s.keeping && s.inString
			continue
		}
		b := p[i]
		i++
		if b <= ' ' {
			continue
		}
		if err := s.token(b); err != nil {
			return err
		}
	}
	return nil
}

// checkJSON counts what is in JSON that was read.
func checkJSON(body []byte, l Limits) error {
	var s scanner
	s.start(l, false)
	return s.scan(body)
}

// token counts one byte outside of strings that is no space.
func (s *scanner) token(b byte) error {
	if s.items && b != ']' {
		s.items = false
		if err := s.add(); err != nil {
			return err
		}
	}
	switch b {
	case '"':
		s.inString = true
		if f := s.current(); s.depth <= 2 && f != nil && f.kind >= root && f.kind <= meta {
			s.keeping, s.kept = true, 0
		}
	case '{':
		return s.open(object, s.text[:s.kept])
	case '[':
		err := s.open(list, s.text[:s.kept])
		s.items = true
		return err
	case '}', ']':
		s.items = false
		s.end()
	case ',':
		if f := s.current(); f != nil && (f.kind == list || f.kind == operations) {
			return s.add()
		}
	case ':':
		return s.add()
	}
	return nil
}

// skip returns how much of the piece is in the string, with its end.
func (s *scanner) skip(p []byte) int {
	i, quote := 0, -1
	for i < len(p) {
		if s.escaped {
			s.escaped = false
			i++
			continue
		}
		// The end is looked for once, however many escapes are before it.
		if quote < i {
			if quote = bytes.IndexByte(p[i:], '"'); quote < 0 {
				quote = len(p)
			} else {
				quote += i
			}
		}
		escape := bytes.IndexByte(p[i:quote], '\\')
		if escape < 0 {
			s.keep(p[i:quote])
			if quote == len(p) {
				return quote
			}
			s.inString = false
			return quote + 1
		}
		s.escaped = true
		i += escape + 1
	}
	return i
}

func (s *scanner) keep(p []byte) {
	switch {
	case !s.keeping:
	case s.kept+len(p) <= len(s.text):
		s.kept += copy(s.text[s.kept:], p)
	default: // it has no name that matters
		s.keeping, s.kept = false, 0
	}
}
