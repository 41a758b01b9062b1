package apis

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// mostErrors is how many errors of one object are reported: a Status joins their
	// messages in a time that grows with the square of their number.
	mostErrors = 100
	// longestValue is how many bytes of a wrong value an error repeats.
	longestValue = 1024
)

// bound leaves out what nobody reads of many errors, and of long values.
func bound(errs field.ErrorList) field.ErrorList {
	if more := len(errs) - mostErrors; more > 0 {
		last := &field.Error{
			Type: field.ErrorTypeInvalid, Field: errs[mostErrors].Field, BadValue: field.OmitValueType{},
			Detail: fmt.Sprintf("%d more errors are not shown", more),
		}
		errs = append(errs[:mostErrors:mostErrors], last)
	}
	for i, err := range errs {
		if short, is := shorten(err.BadValue); is {
			e := *err
			e.BadValue = short
			errs[i] = &e
		}
	}
	return errs
}

// shorten returns the beginning of a value that is too long to be repeated.
func shorten(value any) (short string, is bool) {
	switch v := value.(type) {
	case string:
		if len(v) > longestValue {
			return v[:longestValue] + "...", true
		}
	case []byte:
		if len(v) > longestValue {
			return string(v[:longestValue]) + "...", true
		}
	}
	return "", false
}
