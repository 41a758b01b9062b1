package pki

// Error is a kind of failure, to be recognized with [errors.Is].
type Error string

const (
	// ErrCorrupt is a file that does not hold the PEM block it should.
	ErrCorrupt Error = "corrupt file"
	// ErrMissing is an authority's certificate without its private key.
	ErrMissing Error = "missing file"
	// ErrMismatch is an authority's private key that belongs to another certificate.
	ErrMismatch Error = "private key does not belong to the certificate"
	// ErrValidity is an authority that is not valid now, or soon will not be.
	ErrValidity Error = "certificate authority is not valid for long enough"
	// ErrAuthority is a certificate that is there but cannot sign what is needed.
	ErrAuthority Error = "not usable as a certificate authority"
	// ErrHost is a host that cannot stand in a certificate or a URL.
	ErrHost Error = "not a host name or an IP address"
	// ErrForeign is an existing file that [WriteKubeconfig] did not write.
	ErrForeign Error = "refusing to overwrite a file written by something else"
)

// Error returns the kind in words.
func (e Error) Error() string { return string(e) }
