package server

import (
	"net/netip"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

// limits returns what bounds requests and objects.
func (b *build) limits() controlplane.Part {
	l := b.Limits
	var parts controlplane.Parts
	if l.PriorityAndFairness {
		parts = append(parts, fairness.PriorityAndFairness{Concurrency: l.MaxRequestsInFlight + l.MaxMutatingRequestsInFlight})
	}
	if b.live.follow {
		return append(parts, fairness.FollowLimits(b.live.limits))
	}
	return append(parts, b.live.limits())
}

// bounds are the limits of one request or one client, whoever sends it.
func (b *build) bounds() controlplane.Limits {
	l := b.Limits
	return controlplane.Limits{
		HeaderBytes: orUnlimited(int(l.HeaderSize.Value())), URLBytes: orUnlimited(int(l.URLSize.Value())),
		Answers: controlplane.AnswerLimits{
			Bytes: orUnlimited(int(l.AnswerMemory.Value())), BytesPerUser: int(l.AnswerMemoryPerUser.Value()),
			Wait: l.AnswerWait.Duration, Stall: orUnlimited(l.AnswerStall.Duration),
		},
		LargeRequests:    l.LargeRequests,
		HistoryBytes:     orUnlimited(int(l.HistorySize.Value())),
		CertificateChain: orUnlimited(l.CertificateChain), CertificateKeyBits: orUnlimited(l.CertificateKeyBits),
		HeaderTime: orUnlimited(l.HeaderTime.Duration), BodyTime: orUnlimited(l.BodyTime.Duration),
		Bodies:    b.bodies(),
		Addresses: b.addresses(),
	}
}

// bodies are the limits of what a body holds.
func (b *build) bodies() controlplane.BodyLimits {
	l := b.Limits.Bodies
	return controlplane.BodyLimits{
		Depth: orUnlimited(l.Depth), Values: orUnlimited(l.Values), Members: orUnlimited(l.Members),
		Metadata: orUnlimited(l.Metadata), Operations: orUnlimited(l.Operations),
	}
}

// addresses are the limits of one address.
func (b *build) addresses() controlplane.AddressLimits {
	const field = "limits.addresses.trusted"
	l := b.Limits.Addresses
	trusted := []netip.Prefix{} // not nil, which is the default
	for _, word := range l.Trusted {
		p, err := netip.ParsePrefix(word)
		if err != nil {
			b.wrong(field, "%q is not a network: want CIDRs such as 10.0.0.0/8 or fd00::/8", word)
			continue
		}
		trusted = append(trusted, p.Masked())
	}
	return controlplane.AddressLimits{
		Connections:         orUnlimited(l.Connections),
		HandshakesPerSecond: orUnlimited(l.HandshakesPerSecond), HandshakeBurst: orUnlimited(l.HandshakeBurst),
		FailuresPerSecond: orUnlimited(l.FailuresPerSecond), FailureBurst: orUnlimited(l.FailureBurst),
		Trusted: trusted,
	}
}

// orUnlimited is a limit of the library: there 0 is the default.
func orUnlimited[N int | float64 | time.Duration](n N) N {
	if n == 0 {
		return controlplane.Unlimited
	}
	return n
}

// noAudit in audit.path stands for no audit log.
const noAudit = "none"

// audit returns what records requests.
func (b *build) audit() controlplane.Part {
	a := b.Audit
	var parts controlplane.Parts
	log := auditing.Log{
		Path: a.Path, PolicyFile: a.PolicyFile, Format: auditing.Format(a.Format), Mode: auditing.Mode(a.Mode),
		MaxSize: a.MaxSize.Value(), MaxBackups: a.MaxBackups, MaxAge: a.MaxAge.Duration,
		MaxEvent: int(a.EventSize.Value()), StrangerBytes: a.StrangerSize.Value(), Keep: a.Keep.Duration, Chain: a.Chain,
	}
	if log.Path == "" {
		log.Path = b.in("audit.log")
	}
	if log.Path != "" && log.Path != noAudit {
		parts = append(parts, log)
	}
	if a.Webhook.ConfigFile != "" {
		parts = append(parts, auditing.Webhook{
			ConfigFile: a.Webhook.ConfigFile, PolicyFile: a.Webhook.PolicyFile, Mode: auditing.Mode(a.Webhook.Mode),
			MaxEvent: int(a.EventSize.Value()),
		})
	}
	return parts
}
