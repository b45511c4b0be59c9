// What ns-3 3.37 does wrong, mended without changing its library: what is here takes the place of
// the library's own where the program is linked. Each fault is mended by a bit of `mended`.
//
// * Its scoreboard goes on counting a segment that was sent again as on the way after it has been
//   SACKed, until it is acknowledged cumulatively. RFC 6675 section 4 (SetPipe) counts only what has
//   not been SACKed. A sender whose first retransmission is lost therefore falls silent until its
//   timer expires, where RFC 6675 has it send on.
// * A sender in recovery whose send buffer has nothing unsent left sends again what is above all that
//   has been SACKed: up to a window of segments that are on the way or have arrived. RFC 6675 section
//   4 (NextSeg, rule 3) asks for (1.b) there too: "less than the highest octet covered by any received
//   SACK".
// * In recovery only the first partial acknowledgement restarts the retransmission timer, as RFC 6582
//   section 3.2 has it for senders without SACK. Where recovery lasts longer than the timer, it expires
//   while acknowledgements come, and what has arrived is sent again. RFC 6675 section 6 asks for RFC
//   6298's way, a restart by each acknowledgement of new data (section 5.3), or a more careful one.
// * Its proportional rate reduction multiplies bytes by bytes in 32 bits (mended in later versions).
// * Its CUBIC never grows as fast as Reno would (RFC 9438 section 4.3, which decides wherever windows
//   are small), counts in whole segments, and forgets its greatest window after a timeout.
// * The acknowledgement that ends recovery adds to the window all that it covers, most of which had been
//   SACKed: about a segment, where RFC 5681 section 3.2 (6) sets it to ssthresh, and Linux counts only what
//   that acknowledgement newly delivers (`tcp_cong_avoid` with `acked_sacked`).
// * Its Reno goes on counting after a loss where it was before, as if half a window on average had been
//   acknowledged already. Linux begins anew (`tcp_init_cwnd_reduction` and `tcp_enter_loss` set
//   `snd_cwnd_cnt` to 0).
// * Its CoDel drops a packet where one of full size stays behind, because it compares with `<`: RFC 8289
//   section 5.5 keeps it where no more than that does ("bytes() <= maxpacket"), and so does Linux.
// * A fast retransmission leaves the timer as the last new acknowledgement set it, at least a round trip
//   before what was sent again can be acknowledged. Where 200 ms are hardly more than a round trip, it
//   expires although nothing else is lost. Linux sets it anew (`tcp_xmit_retransmit_queue` with the head).
// * Its CoDel takes the square root of the control law by one step of Newton's method from the last one, as
//   Linux does: the second drop comes 50 ms after the first, where RFC 8289 section 5.6 has 100 ms / sqrt(2).
//   That is no fault of its own, but what is compared is the law.
// * It halves the window to a fraction of a segment, which no window can use, but proportional rate reduction
//   does. Linux has windows in whole segments (`tcp_reno_ssthresh`).
// * Its proportional rate reduction takes for what was in flight before the loss (RecoverFS in RFC 9937 section
//   6.2) what still is, without what was lost or SACKed: with 13 segments sent it takes 9, where the RFC has 11,
//   and so sends a fifth more in recovery.
// * After a timeout an acknowledgement adds to the window what had been SACKed before, so that the one which fills
//   the gap adds all that lies above it. Linux counts what it newly delivers (`tcp_cong_avoid` with `acked_sacked`).
// * Its Reno forgets what is left of an acknowledgement where slow start ends; Linux goes on with it in congestion
//   avoidance (`tcp_reno_cong_avoid`).
// * An acknowledgement of new data that also brings a new SACK block neither restarts the timer (RFC 6298 section
//   5.3) nor lets the window grow. With delayed acknowledgements every second loss begins with one.
// * Whether the first missing segment is lost (RFC 6675 section 5, step 2) it asks of the segment after it, so that
//   recovery begins only with the third duplicate where much has been SACKed already.
// * A partial acknowledgement sends a segment whatever the window; RFC 6675 section 5 (C) asks for room.
// * A second timeout of the same segment reduces `ssthresh` once more, from a window of one; RFC 5681 section 3.1
//   holds it.
// * It takes a sample of the round-trip time with each acknowledgement, but with gains for one in each round trip,
//   and none in recovery. RFC 7323 section 4.2 asks for smaller gains or fewer samples, and with timestamps what was
//   sent again may be timed, too (section 4.1), as in Linux. Its timer follows a growing queue too closely: it expires.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/traffic-control-module.h"

namespace ns3
{
enum Fault : unsigned
{
    SCOREBOARD = 1,
    NEXT_SEGMENT = 2,
    TIMER = 4,
    REDUCTION = 8,
    CUBIC = 16,
    ENDS = 32,
    COUNT = 64,
    SINGLE = 128,
    HEAD = 256,
    ROOT = 512,
    WHOLE = 1024,
    FLIGHT = 2048,
    DELIVERED = 4096,
    LEFT = 8192,
    ADVANCE = 16384,
    HOLE = 32768,
    PARTIAL = 65536,
    HELD = 131072,
    SAMPLES = 262144,
};

// The faults that are mended, and those of them that `ns3_dumbbell.cc` means.
static unsigned mended = 0;
static const unsigned RECOVERY = SCOREBOARD | NEXT_SEGMENT | TIMER | REDUCTION;

static bool
Mends(Fault fault)
{
    return (mended & fault) != 0;
}

// Whether an acknowledgement is being processed, how much of the connection's data is SACKed, and whether a timeout
// leaves `ssthresh` as it is.
static bool acknowledges = false;
static uint32_t sacked = 0;
static bool holds = false;

// This and the next take the place of the library's own, which do the same but for what
// `mended` adds.
uint32_t
TcpTxBuffer::Update(const TcpOptionSack::SackList& blocks, const Callback<void, TcpTxItem*>& told)
{
    uint32_t fresh = 0;
    SequenceNumber32 start = m_firstByteSeq;
    for (auto place = m_sentList.begin(); place != m_sentList.end(); ++place)
    {
        TcpTxItem* item = *place;
        const uint32_t size = item->m_packet->GetSize();
        const SequenceNumber32 end = start + size;
        bool covered = false;
        for (const auto& block : blocks)
        {
            covered = covered || (start >= block.first && end <= block.second);
        }
        if (covered && !item->m_sacked)
        {
            if (item->m_lost)
            {
                item->m_lost = false;
                m_lostOut -= size;
            }
            item->m_sacked = true;
            m_sackedOut += size;
            fresh += size;
            if (m_highestSack.first == m_sentList.end() || m_highestSack.second <= end)
            {
                m_highestSack = std::make_pair(place, start);
            }
            if (!told.IsNull())
            {
                told(item);
            }
            if (Mends(SCOREBOARD) && item->m_retrans)
            {
                item->m_retrans = false;
                m_retrans -= size;
            }
        }
        start = end;
    }
    if (fresh > 0)
    {
        UpdateLostCount();
    }
    return fresh;
}

bool
TcpTxBuffer::NextSeg(SequenceNumber32* seq, SequenceNumber32* end, bool recovers) const
{
    const bool any = m_highestSack.first != m_sentList.end();
    SequenceNumber32 start = m_firstByteSeq;
    SequenceNumber32 doubtful;
    bool doubts = false;
    for (const TcpTxItem* item : m_sentList)
    {
        if (!item->m_retrans && !item->m_sacked)
        {
            if (item->m_lost)
            {
                *seq = start;
                *end = start + m_segmentSize;
                return true;
            }
            const bool below = any && start < m_highestSack.second;
            if (!doubts && recovers && (below || !Mends(NEXT_SEGMENT)))
            {
                doubts = true;
                doubtful = start;
            }
        }
        start += item->m_packet->GetSize();
    }
    if (SizeFromSequence(start) > 0)
    {
        const uint32_t window = m_rWndCallback();
        *seq = start;
        *end = start + std::min(m_segmentSize, window - std::min(window, m_sentSize));
        return m_sentSize <= window;
    }
    *seq = doubtful;
    *end = doubtful + m_segmentSize;
    return doubts;
}

// Asked while a partial acknowledgement is processed, to decide whether the next segment goes whatever the window.
bool
TcpTxBuffer::IsRetransmittedDataAcked(const SequenceNumber32& ack) const
{
    if (Mends(PARTIAL) && acknowledges)
    {
        return true;
    }
    for (const TcpTxItem* item : m_sentList)
    {
        if (item->m_startSeq + item->m_packet->GetSize() == ack)
        {
            return !item->m_sacked && item->m_retrans;
        }
    }
    return false;
}

// Asked whether the first missing segment is lost, but by the number of the segment after it.
bool
TcpTxBuffer::IsLost(const SequenceNumber32& seq) const
{
    const bool first = Mends(HOLE) && seq == m_firstByteSeq + m_segmentSize;
    SequenceNumber32 start = m_firstByteSeq;
    if (seq >= m_highestSack.second)
    {
        return false;
    }
    for (const TcpTxItem* item : m_sentList)
    {
        if (start >= seq || first)
        {
            if (item->m_lost || item->m_sacked)
            {
                return item->m_lost;
            }
        }
        if (first)
        {
            return false;
        }
        start += item->m_packet->GetSize();
    }
    return false;
}

// Restarts the retransmission timer for every acknowledgement of new data, and when the first missing
// segment is sent again.
class Restarting : public TcpSocketBase
{
    void ProcessAck(const SequenceNumber32& ack,
                    bool updated,
                    uint32_t delivered,
                    const SequenceNumber32& head) override
    {
        acknowledges = true;
        sacked = m_txBuffer->GetSacked();
        TcpSocketBase::ProcessAck(ack, updated, delivered, head);
        acknowledges = false;
        if (Mends(ADVANCE) && updated && ack > head &&
            m_tcb->m_congState == TcpSocketState::CA_DISORDER)
        {
            m_congestionControl->IncreaseWindow(m_tcb, (ack - head) / m_tcb->m_segmentSize);
            TcpSocketBase::NewAck(ack, true);
        }
    }

    void EstimateRtt(const TcpHeader& header) override
    {
        if (!Mends(SAMPLES) || !header.HasOption(TcpOption::TS))
        {
            TcpSocketBase::EstimateRtt(header);
            return;
        }
        const SequenceNumber32 ack = header.GetAckNumber();
        const bool repairs = m_tcb->m_congState == TcpSocketState::CA_RECOVERY ||
                             m_tcb->m_congState == TcpSocketState::CA_LOSS;
        m_history.clear();
        if (repairs ? ack <= m_txBuffer->HeadSequence() : ack <= m_timed)
        {
            return;
        }
        m_timed = m_tcb->m_highTxMark;
        const auto echo = DynamicCast<const TcpOptionTS>(header.GetOption(TcpOption::TS));
        m_rtt->Measurement(
            Max(TcpOptionTS::ElapsedTimeFromTsValue(echo->GetEcho()), MicroSeconds(1)));
        m_rto = Max(m_rtt->GetEstimate() + Max(m_clockGranularity, m_rtt->GetVariation() * 4),
                    m_minRto);
        m_tcb->m_lastRtt = m_rtt->GetEstimate();
        m_tcb->m_minRtt = std::min(m_tcb->m_lastRtt.Get(), m_tcb->m_minRtt);
    }

    void ReTxTimeout() override
    {
        const SequenceNumber32 head = m_txBuffer->HeadSequence();
        holds = Mends(HELD) && m_tcb->m_congState == TcpSocketState::CA_LOSS && m_late == head;
        m_late = head;
        TcpSocketBase::ReTxTimeout();
        holds = false;
    }

    uint32_t SendDataPacket(SequenceNumber32 seq, uint32_t size, bool acks) override
    {
        const bool recovers = m_tcb->m_congState == TcpSocketState::CA_RECOVERY;
        if (Mends(HEAD) && recovers && seq == m_txBuffer->HeadSequence())
        {
            m_retxEvent.Cancel(); // The library's own sets it again if it does not run.
        }
        return TcpSocketBase::SendDataPacket(seq, size, acks);
    }

    void NewAck(const SequenceNumber32& ack, bool restarts) override
    {
        TcpSocketBase::NewAck(ack, restarts || Mends(TIMER));
    }

    // The end of what had been sent at the last sample of the round-trip time.
    SequenceNumber32 m_timed{0};
    // The first missing segment at the last timeout.
    SequenceNumber32 m_late{0};
};

// How many segments an acknowledgement says have arrived: those SACKed before do not count again.
static uint32_t
Delivered(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    return Mends(DELIVERED) ? tcb->m_lastAckedSackedBytes / tcb->m_segmentSize : acked;
}

// What the library's own does, for `Restarting`.
Ptr<Socket>
TcpL4Protocol::CreateSocket()
{
    auto created = [](TypeId type) {
        ObjectFactory factory;
        factory.SetTypeId(type);
        return factory.Create();
    };
    Ptr<TcpSocketBase> socket = CreateObject<Restarting>();
    socket->SetNode(m_node);
    socket->SetTcp(this);
    socket->SetRtt(DynamicCast<RttEstimator>(created(m_rttTypeId)));
    socket->SetCongestionControlAlgorithm(
        DynamicCast<TcpCongestionOps>(created(m_congestionTypeId)));
    socket->SetRecoveryAlgorithm(DynamicCast<TcpRecoveryOps>(created(m_recoveryTypeId)));
    m_sockets.push_back(socket);
    return socket;
}

// Proportional rate reduction (RFC 9937 section 6.2) in 64 bits.
class Proportional : public TcpClassicRecovery
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("ns3::Proportional")
                               .SetParent<TcpClassicRecovery>()
                               .AddConstructor<Proportional>();
        return id;
    }

    void EnterRecovery(Ptr<TcpSocketState> tcb,
                       uint32_t,
                       uint32_t outstanding,
                       uint32_t delivered) override
    {
        m_out = 0;
        m_delivered = 0;
        m_flight = tcb->m_bytesInFlight;
        if (Mends(FLIGHT))
        {
            m_flight = outstanding - sacked + delivered;
        }
        DoRecovery(tcb, delivered);
    }

    void DoRecovery(Ptr<TcpSocketState> tcb, uint32_t delivered) override
    {
        if (delivered == 0)
        {
            return;
        }
        m_delivered += delivered;
        const int64_t pipe = tcb->m_bytesInFlight;
        const int64_t threshold = tcb->m_ssThresh;
        const int64_t segment = tcb->m_segmentSize;
        int64_t send;
        if (pipe > threshold)
        {
            send = (m_delivered * threshold + m_flight - 1) / m_flight - m_out;
        }
        else
        {
            const int64_t more = tcb->m_isRetransDataAcked ? segment : 0;
            const int64_t limit = std::max<int64_t>(m_delivered - m_out, delivered) + more;
            send = std::min(limit, threshold - pipe);
        }
        send = std::max(send, m_out > 0 ? 0 : segment);
        tcb->m_cWnd = pipe + send;
        tcb->m_cWndInfl = tcb->m_cWnd;
    }

    void ExitRecovery(Ptr<TcpSocketState> tcb) override
    {
        tcb->m_cWndInfl = tcb->m_cWnd;
    }

    void UpdateBytesSent(uint32_t bytes) override
    {
        m_out += bytes;
    }

    Ptr<TcpRecoveryOps> Fork() override
    {
        return CopyObject<Proportional>(this);
    }

  private:
    int64_t m_delivered{0};
    int64_t m_out{0};
    int64_t m_flight{1};
};
NS_OBJECT_ENSURE_REGISTERED(Proportional);

// Reno as Linux has it, where it is mended.
class Reno : public TcpLinuxReno
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("ns3::Reno").SetParent<TcpLinuxReno>().AddConstructor<Reno>();
        return id;
    }

    void CongestionStateSet(Ptr<TcpSocketState> tcb,
                            const TcpSocketState::TcpCongState_t next) override
    {
        m_ends = Mends(ENDS) && Ends(tcb, next);
    }

    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked) override
    {
        if (std::exchange(m_ends, false))
        {
            return;
        }
        acked = Delivered(tcb, acked);
        if (!Mends(COUNT))
        {
            TcpLinuxReno::IncreaseWindow(tcb, acked);
            return;
        }
        if (tcb->m_cWnd < tcb->m_ssThresh)
        {
            acked = SlowStart(tcb, acked);
            if (acked == 0 || !Mends(LEFT))
            {
                return;
            }
        }
        const uint32_t window = std::max<uint32_t>(tcb->m_cWnd / tcb->m_segmentSize, 1);
        m_counted += acked;
        if (m_counted >= window)
        {
            tcb->m_cWnd += m_counted / window * tcb->m_segmentSize;
            m_counted %= window;
        }
    }

    uint32_t GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t flight) override
    {
        if (holds)
        {
            return tcb->m_ssThresh;
        }
        m_counted = 0;
        if (Mends(WHOLE))
        {
            const uint32_t half = tcb->m_cWnd / tcb->m_segmentSize / 2;
            return std::max<uint32_t>(half, 2) * tcb->m_segmentSize;
        }
        return TcpLinuxReno::GetSsThresh(tcb, flight);
    }

    Ptr<TcpCongestionOps> Fork() override
    {
        return CopyObject<Reno>(this);
    }

    // Whether recovery ends: it is told before the state changes.
    static bool Ends(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCongState_t next)
    {
        return tcb->m_congState == TcpSocketState::CA_RECOVERY && next == TcpSocketState::CA_OPEN;
    }

  private:
    bool m_ends{false};
    uint32_t m_counted{0};
};
NS_OBJECT_ENSURE_REGISTERED(Reno);

// CUBIC as RFC 9438 section 4 has it, names as there, windows in segments.
class Cubic9438 : public TcpCongestionOps
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("ns3::Cubic9438")
                               .SetParent<TcpCongestionOps>()
                               .AddConstructor<Cubic9438>();
        return id;
    }

    std::string GetName() const override
    {
        return "Cubic9438";
    }

    void PktsAcked(Ptr<TcpSocketState>, uint32_t, const Time& rtt) override
    {
        m_rtt = rtt.GetSeconds(); // The library gives the estimate, which is smoothed.
    }

    void CongestionStateSet(Ptr<TcpSocketState> tcb,
                            const TcpSocketState::TcpCongState_t next) override
    {
        m_ends = Mends(ENDS) && Reno::Ends(tcb, next);
    }

    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked) override
    {
        if (std::exchange(m_ends, false))
        {
            return;
        }
        acked = Delivered(tcb, acked);
        const double segment = tcb->m_segmentSize;
        if (tcb->m_cWnd < tcb->m_ssThresh)
        {
            const uint32_t room = (tcb->m_ssThresh - tcb->m_cWnd + tcb->m_segmentSize - 1) /
                                  tcb->m_segmentSize;
            const uint32_t grown = std::min(acked, room);
            tcb->m_cWnd = std::min<uint32_t>(tcb->m_cWnd + grown * tcb->m_segmentSize,
                                             tcb->m_ssThresh);
            acked -= grown;
        }
        if (acked == 0)
        {
            return;
        }
        const double window = tcb->m_cWnd / segment;
        if (!m_running)
        {
            m_running = true;
            m_epoch = Simulator::Now().GetSeconds();
            m_max = std::max(m_max, window);
            m_k = std::cbrt((m_max - window) / C);
            m_estimate = window;
        }
        const double t = Simulator::Now().GetSeconds() - m_epoch;
        const double alpha = m_estimate < m_prior ? 3 * (1 - BETA) / (1 + BETA) : 1;
        m_estimate += alpha * acked / window;
        double next = window;
        if (C * std::pow(t - m_k, 3) + m_max < m_estimate)
        {
            next = std::max(window, m_estimate);
        }
        else
        {
            const double ahead = C * std::pow(t + m_rtt - m_k, 3) + m_max;
            const double target = std::min(std::max(ahead, window), 1.5 * window);
            next = window + (target - window) / window * acked;
        }
        tcb->m_cWnd = std::lround(next * segment);
    }

    uint32_t GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t) override
    {
        if (holds)
        {
            return tcb->m_ssThresh;
        }
        const double window = double(tcb->m_cWnd) / tcb->m_segmentSize;
        m_prior = window;
        m_max = window < m_max ? window * (1 + BETA) / 2 : window;
        m_running = false;
        return std::max(window * BETA, 2.0) * tcb->m_segmentSize;
    }

    Ptr<TcpCongestionOps> Fork() override
    {
        return CopyObject<Cubic9438>(this);
    }

  private:
    static constexpr double C = 0.4;
    static constexpr double BETA = 0.7;
    bool m_ends{false};
    bool m_running{false};
    double m_epoch{0};
    double m_max{0};
    double m_k{0};
    double m_estimate{0};
    double m_prior{0};
    double m_rtt{0};
};
NS_OBJECT_ENSURE_REGISTERED(Cubic9438);

// CoDel as the library has it, but with the root, and without marks, which nothing here asks for. A class of its own,
// because the library calls its own functions directly, so that none of them can be replaced.
class Codel : public CoDelQueueDisc
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId id =
            TypeId("ns3::Codel").SetParent<CoDelQueueDisc>().AddConstructor<Codel>();
        return id;
    }

  private:
    // In units of 1024 ns, as in Linux.
    static uint32_t Units(Time time)
    {
        return time.GetNanoSeconds() >> 10;
    }

    void InitializeParams() override
    {
        UintegerValue least;
        GetAttribute("MinBytes", least);
        m_least = least.Get();
        m_target = Units(GetTarget());
        m_interval = Units(GetInterval());
    }

    Ptr<QueueDiscItem> Take(uint32_t now, bool& drops)
    {
        Ptr<QueueDiscItem> item = GetInternalQueue(0)->Dequeue();
        drops = false;
        if (!item || Units(Simulator::Now() - item->GetTimeStamp()) < m_target ||
            GetInternalQueue(0)->GetNBytes() < m_least)
        {
            m_firstAbove = 0;
        }
        else if (m_firstAbove == 0)
        {
            m_firstAbove = now + m_interval;
        }
        else
        {
            drops = now > m_firstAbove;
        }
        return item;
    }

    uint32_t Gap() const
    {
        return m_interval / std::sqrt(double(m_count));
    }

    Ptr<QueueDiscItem> DoDequeue() override
    {
        const uint32_t now = Units(Simulator::Now());
        bool drops;
        Ptr<QueueDiscItem> item = Take(now, drops);
        if (drops && !m_dropping)
        {
            DropAfterDequeue(item, TARGET_EXCEEDED_DROP);
            item = Take(now, drops);
            m_dropping = true;
            const uint32_t more = m_count - m_last;
            m_count = more > 1 && now - m_next < 16 * m_interval ? more : 1;
            m_last = m_count;
            m_next = now + Gap();
            return item;
        }
        m_dropping = m_dropping && drops;
        while (m_dropping && now >= m_next)
        {
            ++m_count;
            DropAfterDequeue(item, TARGET_EXCEEDED_DROP);
            item = Take(now, m_dropping);
            if (m_dropping)
            {
                m_next += Gap();
            }
        }
        return item;
    }

    uint32_t m_least{0};
    uint32_t m_target{0};
    uint32_t m_interval{0};
    uint32_t m_firstAbove{0};
    uint32_t m_next{0};
    uint32_t m_count{0};
    uint32_t m_last{0};
    bool m_dropping{false};
};
NS_OBJECT_ENSURE_REGISTERED(Codel);

// Gives FQ-CoDel's queues another discipline: what makes them is private.
template <auto Member>
struct Opened
{
    friend auto FactoryOf(FqCoDelQueueDisc& of) -> ObjectFactory&
    {
        return of.*Member;
    }
};
template struct Opened<&FqCoDelQueueDisc::m_queueDiscFactory>;
ObjectFactory& FactoryOf(FqCoDelQueueDisc& of);
} // namespace ns3
