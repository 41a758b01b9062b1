package bodies

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Shapes are the messages of Go types, read from their protobuf tags when they are
// first used. The zero value is ready.
type Shapes struct {
	known sync.Map // reflect.Type to *shape

	mu    sync.RWMutex
	kinds map[string]*shape // by what says the kind in an envelope
}

// ofKind returns the shape of a kind, nil when it is none of the server's.
func (s *Shapes) ofKind(typeMeta []byte, typeOf TypeOf) *shape {
	s.mu.RLock()
	m := s.kinds[string(typeMeta)]
	s.mu.RUnlock()
	if m != nil {
		return m
	}
	const most = 1000 // a kind can be said in many ways
	kind, ok := kindOf(typeMeta)
	if !ok {
		return nil
	}
	t := typeOf(kind)
	if t == nil {
		return nil
	}
	m = s.of(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = map[string]*shape{}
	}
	if len(s.kinds) < most && len(typeMeta) < most {
		s.kinds[string(typeMeta)] = m
	}
	return m
}

// shape is one message.
type shape struct {
	from reflect.Type
	read sync.Once
	// fields are by number.
	fields map[uint64]part
	isMeta bool
	// recursive is set when it contains itself, once it was looked for.
	look      sync.Once
	recursive bool
}

// part is a field of a message.
type part struct {
	// of is the message that it has, nil for others.
	of *shape
	// repeated fields are arrays, or objects if they are entries of a map.
	repeated, entries bool
	// text is set for bytes that are JSON.
	text bool
	name string
}

// of returns the shape of a struct type. Its fields are read later: types contain
// themselves.
func (s *Shapes) of(t reflect.Type) *shape {
	if found, ok := s.known.Load(t); ok {
		return found.(*shape)
	}
	found, _ := s.known.LoadOrStore(t, &shape{from: t, isMeta: t.Name() == "ObjectMeta"})
	return found.(*shape)
}

func (s *Shapes) fieldsOf(m *shape) map[uint64]part {
	m.read.Do(func() {
		m.fields = map[uint64]part{}
		for i := range m.from.NumField() {
			f := m.from.Field(i)
			tag := strings.Split(f.Tag.Get("protobuf"), ",")
			if len(tag) < 3 {
				continue
			}
			if number, err := strconv.ParseUint(tag[1], 10, 32); err == nil {
				m.fields[number] = s.partOf(f)
			}
		}
	})
	return m.fields
}

func (s *Shapes) partOf(f reflect.StructField) part {
	p := part{text: f.Name == "Raw"}
	p.name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
	t := f.Type
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		p.repeated = true
		t = t.Elem()
	case t.Kind() == reflect.Map:
		p.repeated, p.entries = true, true
		t = t.Elem()
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Struct:
		p.of = s.of(t)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		// A list with a name is a message of its own, with the items as field 1.
		p.of = s.of(reflect.TypeFor[items]())
	}
	return p
}

// items is the message that a list with a name is.
type items struct {
	Items []string `protobuf:"bytes,1,rep,name=items"`
}

// entryValue is the number of the value in an entry of a map.
const entryValue = 2

// prefix is what a body of protobuf begins with.
const prefix = "k8s\x00"

// TypeOf finds the Go type of a kind, a struct; nil: it is none of the server's.
type TypeOf func(schema.GroupVersionKind) reflect.Type

// errNoProtobuf is the error of what is not the API's protobuf. What this package cannot
// follow is refused, for a decoder may follow it.
func errNoProtobuf() error { return malformed("the body is not protobuf as the API has it") }

// checkProtobuf counts what is in an object in protobuf. Kinds of other servers are
// not looked at.
func (s *Shapes) checkProtobuf(body []byte, l Limits, typeOf TypeOf) error {
	if len(body) == 0 {
		return nil // a deletion without options
	}
	rest, found := bytes.CutPrefix(body, []byte(prefix))
	if !found {
		return errNoProtobuf()
	}
	raw, typeMeta, ok := unwrap(rest)
	if !ok {
		return errNoProtobuf()
	}
	kind, ok := kindOf(typeMeta)
	if !ok {
		return errNoProtobuf()
	}
	if kind.Kind == "" || kind.Version == "" {
		return malformed("the body is protobuf without an apiVersion and a kind: send both")
	}
	m := s.ofKind(typeMeta, typeOf)
	if m == nil {
		return nil
	}
	w := walk{shapes: s, limits: l}
	return w.message(raw, m, 1)
}

// checkDepth checks how deep an object in protobuf nests whose kind may nest without
// an end.
func (s *Shapes) checkDepth(value []byte, typeOf TypeOf) error {
	raw, typeMeta, ok := unwrap(value[len(prefix):])
	if !ok {
		return errNoProtobuf()
	}
	m := s.ofKind(typeMeta, typeOf)
	if m == nil {
		return nil
	}
	m.look.Do(func() { m.recursive = s.recurses(m, map[*shape]bool{}) })
	if !m.recursive {
		return nil
	}
	w := walk{shapes: s, limits: Limits{recursion, Unlimited, Unlimited, Unlimited, Unlimited}}
	return w.message(raw, m, 1)
}

// recurses tells whether a message, or one in it, contains itself.
func (s *Shapes) recurses(m *shape, above map[*shape]bool) bool {
	if above[m] {
		return true
	}
	above[m] = true
	defer delete(above, m)
	for _, is := range s.fieldsOf(m) {
		if is.of != nil && s.recurses(is.of, above) {
			return true
		}
	}
	return false
}

// unwrap returns the object in an envelope and what says its kind.
func unwrap(envelope []byte) (raw, typeMeta []byte, ok bool) {
	for at := 0; at < len(envelope); {
		f, ok := nextField(envelope, &at)
		if !ok {
			return nil, nil, false
		}
		switch f.number {
		case 1:
			if typeMeta == nil {
				typeMeta = f.content
				continue
			}
			typeMeta = append(typeMeta[:len(typeMeta):len(typeMeta)], f.content...) // messages that are repeated are merged
		case 2:
			raw = f.content
		}
	}
	return raw, typeMeta, true
}

func kindOf(typeMeta []byte) (gvk schema.GroupVersionKind, ok bool) {
	var version, kind string
	for at := 0; at < len(typeMeta); {
		f, ok := nextField(typeMeta, &at)
		if !ok {
			return gvk, false
		}
		switch f.number {
		case 1:
			version = string(f.content)
		case 2:
			kind = string(f.content)
		}
	}
	return schema.FromAPIVersionAndKind(version, kind), true
}

// protoField is one field on the wire; others than those with a length have no content.
type protoField struct {
	number  uint64
	content []byte
	sized   bool
}

// nextField reads a field as the API's decoders do, and tells whether there is one.
// Groups, which they skip, are not read: nothing sends them.
func nextField(p []byte, at *int) (protoField, bool) {
	tag, ok := varint(p, at)
	number := int32(tag >> 3) //nolint:gosec // decoders drop the rest of the number
	if !ok || number <= 0 {
		return protoField{}, false
	}
	f := protoField{number: uint64(number)}
	switch tag & 7 {
	case 0:
		_, ok = varint(p, at)
		return f, ok
	case 1:
		*at += 8
	case 2:
		size, ok := varint(p, at)
		if !ok || size > uint64(len(p)-*at) {
			return protoField{}, false
		}
		f.content, f.sized = p[*at:*at+int(size)], true
		*at += int(size)
	case 5:
		*at += 4
	default:
		return protoField{}, false
	}
	return f, *at <= len(p)
}

// varint reads a number of at most ten bytes. As in the API's decoders, bits for which it
// has no room are dropped, which the encoding does not allow.
// https://github.com/gogo/protobuf/blob/v1.3.2/plugin/unmarshal/unmarshal.go#L338
func varint(p []byte, at *int) (n uint64, ok bool) {
	for shift := 0; shift < 64 && *at < len(p); shift += 7 {
		b := p[*at]
		*at++
		if n |= uint64(b&0x7f) << shift; b < 0x80 {
			return n, true
		}
	}
	return 0, false
}

// walk counts what is in messages.
type walk struct {
	shapes *Shapes
	limits Limits
	values int
}

// recursion is how deep messages may nest when nothing else bounds them: as deep as
// the decoders of JSON and CBOR go.
const recursion = 10_000

// message counts what is in one message. It calls itself, to the depth that is allowed.
func (w *walk) message(p []byte, m *shape, depth int) error {
	if above(depth, w.limits.Depth) || depth > recursion {
		return tooMuch("the body nests deeper than is allowed", min(max(w.limits.Depth, 1), recursion))
	}
	fields := w.shapes.fieldsOf(m)
	var counts [64]int // by number of the field
	for at := 0; at < len(p); {
		f, ok := nextField(p, &at)
		if !ok {
			return errNoProtobuf()
		}
		if w.values++; above(w.values, w.limits.Values) {
			return tooMuch("the body has more values than are allowed", w.limits.Values)
		}
		is, known := fields[f.number]
		if !known {
			continue
		}
		n := &counts[f.number%uint64(len(counts))]
		*n++
		if is.repeated {
			if err := w.repeated(is, m, *n); err != nil {
				return err
			}
		} else if is.of != nil && f.number < uint64(len(counts)) && *n > 1 {
			// Decoders merge these: their lists would grow.
			return malformed("the body is protobuf with a field " + is.name + " twice")
		}
		if err := w.content(f, is, depth); err != nil {
			return err
		}
	}
	return nil
}

// repeated checks how often a field is there.
func (w *walk) repeated(is part, in *shape, n int) error {
	if name := inMetadata([]byte(is.name)); in.isMeta && name != "" {
		if above(n, w.limits.Metadata) {
			return tooMuch("there are more "+name+" than are allowed", w.limits.Metadata)
		}
		return nil
	}
	if above(n, w.limits.Members) {
		return tooMuch("there are more "+is.name+" than are allowed", w.limits.Members)
	}
	return nil
}

// text counts what is in JSON.
func (w *walk) text(p []byte) error {
	var s scanner
	s.start(w.limits, false)
	s.values = w.values
	err := s.scan(p)
	w.values = s.values
	return err
}

// content counts what is in a field.
func (w *walk) content(f protoField, is part, depth int) error {
	switch {
	case !f.sized:
		return nil
	case is.text:
		return w.text(f.content)
	case is.entries && is.of != nil:
		for at := 0; at < len(f.content); {
			entry, ok := nextField(f.content, &at)
			if !ok {
				return errNoProtobuf()
			}
			if entry.number == entryValue && entry.sized {
				if err := w.message(entry.content, is.of, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	case is.of != nil:
		return w.message(f.content, is.of, depth+1)
	}
	return nil
}
