package bodies

import "bytes"

// outline counts what is in YAML line by line, like the scanner of its library, and
// leaves out what is in block scalars and in quotes. Where it cannot be sure what
// a line is, it counts all that the line may be.
// https://yaml.org/spec/1.1/#id902924
type outline struct {
	limits Limits
	values int
	// indents are the columns of the blocks that are open, counts their entries.
	indents []entries
	// flow is how deep flow collections nest, quote the quotation mark that is open.
	flow  int
	quote byte
	// block is the column that lines of a block scalar have at least; below 0: there
	// is none. It is searched for until the first line that is not empty.
	block     int
	searching bool
	// text is set in a flow collection behind what begins plain text.
	text bool
	// doubtful is set behind a line that may be more than was understood.
	doubtful bool
	// plain is the column of a block whose last value was plain text: lines further
	// in continue it. none: it was not.
	plain int
}

// none is no column: that of the outermost block is -1.
const none = -2

// entries are those of one block: its members, or its items, which may have the
// column of the object that they are in.
type entries struct{ column, members, items int }

// read counts a body.
func (o *outline) read(body []byte) error {
	o.block, o.plain = -1, none
	if strange(body) {
		return o.all(body)
	}
	for len(body) > 0 {
		line := body
		if end := bytes.IndexByte(body, '\n'); end >= 0 {
			line, body = body[:end], body[end+1:]
		} else {
			body = nil
		}
		if err := o.line(bytes.TrimSuffix(line, []byte{'\r'})); err != nil {
			return err
		}
	}
	return nil
}

// strange tells whether a text may have lines that end otherwise, or is no UTF-8.
func strange(p []byte) bool {
	if bytes.IndexByte(p, 0) >= 0 || bytes.Contains(p, []byte("\u0085")) || bytes.Contains(p, []byte("\u2028")) ||
		bytes.Contains(p, []byte("\u2029")) || bytes.HasPrefix(p, []byte("\xff\xfe")) || bytes.HasPrefix(p, []byte("\xfe\xff")) {
		return true
	}
	for {
		i := bytes.IndexByte(p, '\r')
		if i < 0 {
			return false
		}
		if i+1 == len(p) || p[i+1] != '\n' {
			return true
		}
		p = p[i+1:]
	}
}

// all counts everything that a text may be.
func (o *outline) all(p []byte) error {
	m, columns := marksIn(p)
	if err := o.add(m.all); err != nil {
		return err
	}
	if above(o.flow+len(o.indents)+m.open+columns, o.limits.Depth) {
		return o.tooDeep()
	}
	return nil
}

func (o *outline) tooDeep() error {
	return tooMuch("the body nests deeper than is allowed", o.limits.Depth)
}

func (o *outline) add(n int) error {
	o.values += n
	if above(o.values, o.limits.Values) {
		return tooMuch("the body has more values than are allowed", o.limits.Values)
	}
	return nil
}

// line counts one line.
func (o *outline) line(p []byte) error {
	text := bytes.TrimLeft(p, " ")
	column := len(p) - len(text)
	empty := len(bytes.Trim(text, " \t")) == 0
	switch {
	case o.doubtful:
		return o.all(p)
	case o.inBlock(column, empty):
		return nil
	case o.quote != 0 || o.flow > 0:
		return o.tokens(text)
	case empty || text[0] == '#':
		return nil
	case column == 0 && bytes.HasPrefix(text, []byte("---")) && len(bytes.Trim(text[3:], " ")) == 0:
		o.plain, o.indents = none, o.indents[:0]
		return nil
	case text[0] == '\t' || column == 0 && (text[0] == '%' || bytes.HasPrefix(text, []byte("---")) || bytes.HasPrefix(text, []byte("..."))):
		return o.doubt(p)
	case o.plain != none && column > o.plain:
		return nil // it is more of the text, or an error, and begins nothing
	}
	o.plain = none
	o.leave(column)
	return o.entry(text, column)
}

// inBlock tells whether a line belongs to the block scalar that is open.
func (o *outline) inBlock(column int, empty bool) bool {
	if o.block < 0 {
		return false
	}
	if o.searching {
		o.block = max(o.block, column)
		o.searching = empty
	}
	if empty || column >= o.block {
		return true
	}
	o.block = -1
	return false
}

// leave ends the blocks that are further in than a column.
func (o *outline) leave(column int) {
	for len(o.indents) > 0 && o.indents[len(o.indents)-1].column > column {
		o.indents = o.indents[:len(o.indents)-1]
	}
}

// enter counts an entry of the block at a column.
func (o *outline) enter(column int, item bool) error {
	if n := len(o.indents); n == 0 || o.indents[n-1].column < column {
		o.indents = append(o.indents, entries{column: column})
		if above(n+1, o.limits.Depth) {
			return o.tooDeep()
		}
	}
	last := &o.indents[len(o.indents)-1]
	if item {
		last.items++
	} else {
		last.members++
		last.items = 0
	}
	if above(max(last.items, last.members), o.limits.Members) {
		return tooMuch("an object or array has more entries than are allowed", o.limits.Members)
	}
	return o.add(1)
}

// entry counts what begins at a column in a block.
func (o *outline) entry(text []byte, column int) error {
	for text[0] == '-' && (len(text) == 1 || isBlank(text[1])) {
		if err := o.enter(column, true); err != nil {
			return err
		}
		rest := bytes.TrimLeft(text[1:], " ")
		column += len(text) - len(rest)
		if text = rest; len(text) == 0 {
			return nil
		}
	}
	parent := -1
	if n := len(o.indents); n > 0 {
		parent = o.indents[n-1].column
	}
	if bytes.IndexByte([]byte("?:&*!%@`\t"), text[0]) >= 0 {
		if _, _, isKey := cutKey(text); isKey || text[0] == '?' || text[0] == '\t' {
			return o.doubt(text)
		}
	}
	if value, found, sure := cutKey(text); !sure {
		return o.doubt(text)
	} else if found {
		if err := o.enter(column, false); err != nil {
			return err
		}
		text, parent = bytes.TrimLeft(value, " "), column
	}
	return o.value(text, parent)
}

// doubt counts all that a line and those behind it may be.
func (o *outline) doubt(text []byte) error {
	o.doubtful = true
	return o.all(text)
}

// cutKey returns what is behind the key of a line, and whether it is sure about it.
func cutKey(text []byte) (value []byte, found, sure bool) {
	from := 0
	switch text[0] {
	case '"', '\'':
		end := bytes.IndexByte(text[1:], text[0])
		if end < 0 || bytes.IndexByte(text[:end+1], '\\') >= 0 {
			return nil, false, true // what is in quotes is looked at by tokens
		}
		if from = end + 2; from == len(text) || text[from] != ':' {
			return nil, false, true
		}
	case '[', '{', '|', '>', '#':
		return nil, false, true
	}
	for i := from; i < len(text); i++ {
		if text[i] == '#' && i > 0 && isBlank(text[i-1]) {
			return nil, false, true
		}
		if text[i] == ':' && (i+1 == len(text) || isBlank(text[i+1])) {
			return text[i+1:], true, i > 0
		}
	}
	return nil, false, true
}

// value counts what stands behind a key or a dash, in the block of a column.
func (o *outline) value(text []byte, parent int) error {
	// Anchors and tags are in front of it.
	for len(text) > 0 && (text[0] == '&' || text[0] == '!') {
		i := bytes.IndexByte(text, ' ')
		if i < 0 {
			return nil
		}
		text = bytes.TrimLeft(text[i:], " ")
	}
	if len(text) == 0 || text[0] == '#' {
		return nil
	}
	switch text[0] {
	case '|', '>':
		return o.header(text, parent)
	case '"', '\'', '[', '{':
		return o.tokens(text)
	case '\t', '?', ':', '-':
		return o.doubt(text)
	}
	o.plain = parent
	return nil
}

// header begins a block scalar.
func (o *outline) header(text []byte, parent int) error {
	explicit, rest := 0, text[1:]
	for len(rest) > 0 && (rest[0] == '+' || rest[0] == '-' || rest[0] >= '1' && rest[0] <= '9') {
		if rest[0] >= '1' {
			explicit = int(rest[0] - '0')
		}
		rest = rest[1:]
	}
	if rest = bytes.TrimLeft(rest, " \t"); len(rest) > 0 && rest[0] != '#' {
		return o.doubt(text) // it is an error
	}
	o.block, o.searching = max(parent+1, 1), explicit == 0
	if explicit > 0 {
		o.block = max(parent, 0) + explicit
	}
	return nil
}

// tokens counts what is in quotes and flow collections, which may go on in the next line.
func (o *outline) tokens(p []byte) error {
	for i := 0; i < len(p); i++ {
		b := p[i]
		switch {
		case o.quote != 0:
			if o.quote == '"' && b == '\\' {
				i++
			} else if b == o.quote {
				o.quote = 0 // '' ends and begins again, which comes to the same
			}
		case isBlank(b):
		case b == '#' && (!o.text || i == 0 || isBlank(p[i-1])):
			return nil
		case o.flow == 0 && i > 0 && b != '\'', bytes.IndexByte([]byte("&*!"), b) >= 0 && !o.text:
			return o.doubt(p[i:]) // what is behind it may be a key, or in quotes
		default:
			if err := o.token(b, i+1 == len(p) || isBlank(p[i+1])); err != nil {
				return err
			}
		}
	}
	return nil
}

// token counts one byte of a flow collection that is not in quotes.
func (o *outline) token(b byte, beforeBlank bool) error {
	switch {
	case bytes.IndexByte([]byte("[]{},?"), b) >= 0:
		o.text = false
		return o.mark(b)
	case b == ':':
		// In text only one in front of a space ends it.
		o.text = o.text && !beforeBlank
		return o.add(1)
	case (b == '"' || b == '\'') && !o.text:
		o.quote = b
	default:
		o.text = true
	}
	return nil
}

// mark counts a mark of a flow collection.
func (o *outline) mark(b byte) error {
	switch b {
	case '[', '{':
		o.flow++
		if above(o.flow+len(o.indents), o.limits.Depth) {
			return o.tooDeep()
		}
	case ']', '}':
		o.flow = max(o.flow-1, 0)
		return nil
	}
	return o.add(1)
}
