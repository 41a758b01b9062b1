package feed

// maxSteps bounds how exactly a feed knows which revisions history is of.
const maxSteps = 512

// history is how many bytes were replaced or deleted, and until which revision.
type history struct {
	bytes int64
	steps []step // the oldest first
}

// step is how many bytes were replaced up to a revision, and with it.
type step struct{ revision, bytes int64 }

// add notes that the write with a revision replaced so many bytes.
func (h *history) add(revision, bytes int64) {
	h.bytes += bytes
	if len(h.steps) == maxSteps {
		// Each second one: what is kept is known half as exactly.
		for i := range maxSteps / 2 {
			h.steps[i] = h.steps[2*i+1]
		}
		h.steps = h.steps[:maxSteps/2]
	}
	h.steps = append(h.steps, step{revision, h.bytes})
}

// after is how many bytes were replaced after a revision: what a storage still has that
// was compacted there.
func (h *history) after(revision int64) int64 {
	gone := 0
	for gone < len(h.steps) && h.steps[gone].revision <= revision {
		gone++
	}
	if gone > 1 {
		h.steps = append(h.steps[:0], h.steps[gone-1:]...)
		gone = 1
	}
	if gone == 0 {
		return h.bytes
	}
	return h.bytes - h.steps[0].bytes
}

// replaced is how many bytes the storage keeps of the plane that were replaced or
// deleted since the feed began.
func (f *Feed) replaced(compacted int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history.after(compacted)
}
