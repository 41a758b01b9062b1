// Package parts holds what is promised of every part of the library: that its zero
// value works, or says which field it needs, and that to install it reads no file.
package parts
